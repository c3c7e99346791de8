//! Nodes of a Cluster that die or hang, and what the others make of it.
