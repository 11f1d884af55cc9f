//! A real Kubernetes on one machine, whose nodes are Linux namespaces.
