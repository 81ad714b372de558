//! One page of the pages of several recorders. The format wants all series of one name in one
//! place.

use std::collections::{BTreeMap, HashMap};

use metrics::SharedString;
use metrics_exporter_prometheus::formatting::write_help_line;

const TYPE: &str = "# TYPE ";

/// All series, by the names of their metrics.
#[derive(Default)]
pub(super) struct Page(BTreeMap<String, Family>);

/// The series of one metric.
struct Family {
    /// The line with the name and the type.
    type_line: String,
    series: String,
}

impl Page {
    /// Adds the page of a recorder that knows no descriptions.
    pub(super) fn add(&mut self, text: &str) {
        let mut family = None;
        for line in text.split_inclusive('\n') {
            if let Some(name_and_type) = line.strip_prefix(TYPE) {
                let name = name_and_type.split(' ').next().unwrap_or_default();
                let entry = self.0.entry(name.to_owned());
                family = Some(entry.or_insert_with(|| Family {
                    type_line: line.to_owned(),
                    series: String::new(),
                }));
            } else if let Some(family) = &mut family
                && line != "\n"
            {
                family.series.push_str(line);
            }
        }
    }

    pub(super) fn write(self, descriptions: &HashMap<String, SharedString>) -> String {
        let mut page = String::new();
        for (name, family) in self.0 {
            if let Some(description) = descriptions.get(&name) {
                write_help_line(&mut page, &name, None, None, description);
            }
            page.push_str(&family.type_line);
            page.push_str(&family.series);
            page.push('\n');
        }
        page
    }
}
