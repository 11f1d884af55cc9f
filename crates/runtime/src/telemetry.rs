//! Log lines, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// What is logged, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Default: text on a terminal, json elsewhere.
    #[arg(long, env = "QUORATE_LOG_FORMAT", global = true)]
    pub log_format: Option<LogFormat>,

    /// What to log, for example `info,kube=debug`.
    #[arg(long, env = "QUORATE_LOG", default_value = "info", value_parser = filter, global = true)]
    pub log: Targets,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

/// A comma too many must not silence everything before it.
fn filter(text: &str) -> Result<Targets, ParseError> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",").parse()
}

/// Starts logging. Fails only where it was started before.
pub fn start(options: &Options) -> Result<(), TryInitError> {
    let default = if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json };
    let lines = fmt::layer().with_writer(std::io::stderr);
    let filtered = tracing_subscriber::registry().with(options.log.clone());
    match options.log_format.unwrap_or(default) {
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            filtered.with(lines).try_init()
        }
        LogFormat::Text => filtered.with(lines.compact()).try_init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_filter_is_read_as_it_is_meant() {
        for text in ["info,quorate_operator=debug", " info, quorate_operator=debug,"] {
            let filter = filter(text).unwrap();
            assert!(
                filter.would_enable("hyper", &Level::INFO) && !filter.would_enable("hyper", &Level::DEBUG),
                "{text}"
            );
            assert!(filter.would_enable("quorate_operator::run", &Level::DEBUG), "{text}");
        }
        assert!(filter("quorate_operator=loud").is_err());
    }
}
