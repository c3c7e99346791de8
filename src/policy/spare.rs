use super::Plan;

/// The plan that a document came to when it was read. It is used once at most: copies of a policy have none.
#[derive(Debug)]
pub(super) struct Spare(Option<Box<Plan>>);

impl Spare {
    pub(super) fn new(plan: Plan) -> Spare {
        Spare(Some(Box::new(plan)))
    }

    pub(super) fn take(&mut self) -> Option<Plan> {
        self.0.take().map(|plan| *plan)
    }
}

impl Clone for Spare {
    fn clone(&self) -> Spare {
        Spare(None)
    }
}
