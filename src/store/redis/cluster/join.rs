use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

/// One of several that are waited for together.
pub(super) type Joined<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all at once, and gives what they gave in the same order. They are few, so each is looked at whenever one moves.
pub(super) async fn join<'a, T>(futures: impl Iterator<Item = Joined<'a, T>>) -> Vec<T> {
    let mut pairs: Vec<(Joined<'a, T>, Option<T>)> = futures.map(|future| (future, None)).collect();
    poll_fn(|context| {
        let mut all = Poll::Ready(());
        for (future, output) in &mut pairs {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(given) => *output = Some(given),
                    Poll::Pending => all = Poll::Pending,
                }
            }
        }
        all
    })
    .await;
    pairs.into_iter().filter_map(|(_, output)| output).collect()
}
