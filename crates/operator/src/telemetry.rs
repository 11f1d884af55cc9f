//! Log lines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::options::{LogFormat, Options};

/// Starts logging to standard error.
pub fn start(options: &Options) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&options.log)?;
    let default = if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match options.log_format.unwrap_or(default) {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Text => builder.compact().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
