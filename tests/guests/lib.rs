//! Empty: the guests are the examples of this package, one component each.
