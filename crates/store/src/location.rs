//! URLs of stores: `s3://bucket/prefix`, `gs://`, `az://container/prefix`, `file:///dir`.

use crate::{Error, ErrorKind, Prefix, Provider, Result, Settings};

const PROVIDERS: [Provider; 4] = [Provider::S3, Provider::Gcs, Provider::Azure, Provider::File];

impl Settings {
    /// From a URL. Everything it cannot say is left at its default.
    pub fn from_url(url: &str) -> Result<Self> {
        let refuse = |cause: &str| Error::new(ErrorKind::Misconfigured, "the URL of a store", "reading it", cause);
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| refuse("it does not begin with s3://, gs://, az:// or file://"))?;
        let provider = PROVIDERS
            .into_iter()
            .find(|provider| provider.scheme() == scheme)
            .ok_or_else(|| refuse("it does not begin with s3://, gs://, az:// or file://"))?;
        if provider == Provider::File {
            // What follows is a path as it is, not one with escapes.
            let directory = if rest == "/" { rest } else { rest.trim_end_matches('/') };
            let settings = Self::new(provider, directory, Prefix::default());
            settings.check().map_err(|error| refuse(error.cause()))?;
            return Ok(settings);
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // A query or a user's name would be a secret in a place that is printed; the pattern of names has no room for them.
        let prefix = Prefix::new(prefix).map_err(|_| {
            refuse("what follows the bucket is no prefix: letters, digits, '.', '_' and '-' between single slashes")
        })?;
        let settings = Self::new(provider, bucket, prefix);
        settings.check().map_err(|_| refuse("what follows the scheme is not the name of a bucket"))?;
        Ok(settings)
    }

    /// The place as a URL, which holds no secret.
    pub fn location(&self) -> String {
        let scheme = self.provider.scheme();
        match self.provider {
            Provider::File => format!("{scheme}://{}/{}", self.bucket.trim_end_matches('/'), self.prefix.as_str()),
            _ => format!("{scheme}://{}/{}", self.bucket, self.prefix.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_names_its_provider() {
        let cases = [
            ("s3://backups/team/example", Provider::S3, "backups", "team/example/", "s3://backups/team/example/"),
            ("s3://backups", Provider::S3, "backups", "", "s3://backups/"),
            ("gs://backups/", Provider::Gcs, "backups", "", "gs://backups/"),
            ("az://container/p/", Provider::Azure, "container", "p/", "az://container/p/"),
            ("file:///var/backups", Provider::File, "/var/backups", "", "file:///var/backups/"),
            ("file:///", Provider::File, "/", "", "file:///"),
        ];
        for (url, provider, bucket, prefix, location) in cases {
            let settings = Settings::from_url(url).unwrap();
            assert_eq!((settings.provider, settings.bucket.as_str()), (provider, bucket), "{url}");
            assert_eq!(settings.prefix.as_str(), prefix, "{url}");
            assert_eq!(settings.location(), location, "{url}");
        }
    }

    #[test]
    fn what_is_not_a_place_is_refused_without_repeating_it() {
        let refused = [
            "",
            "backups",
            "http://backups/x",
            "s3:/backups",
            "s3://",
            "s3:///x",
            "s3://backups//x",
            "s3://backups/../x",
            "s3://key:canary@backups/x",
            "s3://backups/x?token=canary",
            "s3://backups/x#canary",
            "file://relative",
            "file:///a/../b",
            "az://container/%2e%2e/x",
        ];
        for url in refused {
            let said = Settings::from_url(url).unwrap_err().to_string();
            assert!(!said.contains("canary"), "{said}");
        }
    }
}
