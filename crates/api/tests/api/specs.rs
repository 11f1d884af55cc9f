//! The table of specs, for all who answer to them. Included by path where another crate answers.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

/// One line: a claim and what shows it. `specs.yaml` says what the fields mean.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) claim: String,
    #[serde(default)]
    pub(crate) from: Option<Value>,
    #[serde(default = "no_spec")]
    specs: Vec<Value>,
    #[serde(default = "any_name")]
    names: Vec<String>,
    #[serde(default)]
    refused: BTreeSet<String>,
    #[serde(default)]
    besides: BTreeSet<String>,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each crate that includes this is one of them")]
pub(crate) enum Judge {
    Admission,
    Operator,
}

fn no_spec() -> Vec<Value> {
    vec![Value::Object(serde_json::Map::new())]
}

fn any_name() -> Vec<String> {
    vec!["etcd".to_owned()]
}

pub(crate) fn table() -> Vec<Line> {
    serde_saphyr::from_str(include_str!("specs.yaml")).unwrap()
}

impl Line {
    /// Each name and spec that gets the answer of this line.
    pub(crate) fn cases(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.names.iter().flat_map(|name| self.specs.iter().map(move |spec| (name.as_str(), spec)))
    }

    /// How an answer, which is a sentence for each defect, differs from this line.
    pub(crate) fn difference(&self, judge: Judge, case: (&str, &Value), answer: &[String]) -> Option<String> {
        let mut expected = self.refused.clone();
        if judge == Judge::Admission {
            expected.extend(self.besides.iter().cloned());
        }
        let about = |sentence: &String| {
            let field = field(sentence);
            expected.iter().find(|whole| is_within(&field, whole)).cloned().unwrap_or(field)
        };
        let said = answer.iter().map(about).collect::<BTreeSet<_>>();
        let (name, spec) = case;
        let (claim, from) = (&self.claim, self.from.as_ref().map(|spec| format!(" from {spec}")).unwrap_or_default());
        (said != expected).then(|| format!("{claim}: {name}{from} to {spec} should name {expected:?}: {answer:#?}"))
    }
}

/// The first field that a sentence names, or all of the sentence if it names none.
fn field(sentence: &str) -> String {
    let words = sentence.split(|c: char| !(c.is_alphanumeric() || ".[]".contains(c)));
    let named = words
        .map(|word| word.trim_matches('.'))
        .find(|word| ["spec.", "metadata."].iter().any(|root| word.starts_with(root)));
    named.unwrap_or(sentence).to_owned()
}

fn is_within(field: &str, whole: &str) -> bool {
    field.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
