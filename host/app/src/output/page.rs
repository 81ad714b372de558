//! A page of labelled lines, the form in which most commands answer people.

use std::fmt::{Display, Write};

/// Text whose lines have a label each; the values begin in one column.
pub(crate) struct Page {
    text: String,
    label_width: usize,
}

impl Page {
    /// An empty page whose labels have at most `label_width` characters.
    pub(crate) fn new(label_width: usize) -> Self {
        Self {
            text: String::new(),
            label_width,
        }
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, label: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "{label:width$} {value}",
            width = self.label_width
        );
    }

    /// Adds a line that has no label.
    pub(crate) fn plain(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }

    /// Adds a line of values, unless there are none.
    pub(crate) fn list(&mut self, label: &str, values: &[String]) {
        if !values.is_empty() {
            self.line(label, values.join(", "));
        }
    }

    /// The page, with an end of line after each line.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
