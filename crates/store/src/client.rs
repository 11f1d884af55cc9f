//! From settings to a client of the provider.

use std::path::Path;
use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::azure::{AzureAccessKey, AzureConfigKey, AzureCredential, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::wire::{Completion, Conditions, NoTls, Wire};
use crate::{Credentials, Error, ErrorKind, Provider, Result, Settings};

/// One generation of the connection to a provider. Not printable: what it is made of is secret.
pub(crate) struct Client {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Whether an upload is completed under another name and then moved, because its completion takes no condition.
    pub(crate) parks: bool,
    /// Whether an object can carry the mark of who created it.
    pub(crate) marks: bool,
}

/// Why there is no client.
type Cause = String;

impl Client {
    pub(crate) fn new(settings: &Settings, conditions: Arc<Conditions>) -> Result<Self> {
        settings.check()?;
        let made = match settings.provider {
            Provider::S3 => s3(settings, conditions),
            Provider::Gcs => gcs(settings, conditions),
            Provider::Azure => azure(settings, conditions),
            Provider::File => directory(settings),
        };
        made.map_err(|cause| Error::new(ErrorKind::Misconfigured, &settings.location(), "opening it", cause))
    }
}

fn options(settings: &Settings) -> ClientOptions {
    ClientOptions::new().with_allow_http(settings.plain_text())
}

fn retry(settings: &Settings) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: settings.limits.retries,
        retry_timeout: settings.limits.retry_for,
    }
}

/// The client's own words may quote a key that it could not read, so only a cause of ours is passed on.
fn explain(error: &object_store::Error, otherwise: &str) -> Cause {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(NoTls(cause)) = error.downcast_ref::<NoTls>() {
            return (*cause).to_owned();
        }
        source = error.source();
    }
    otherwise.to_owned()
}

fn wire(settings: &Settings, completion: Completion, conditions: Arc<Conditions>) -> Result<Wire, Cause> {
    Wire::new(settings, completion, conditions).map_err(|error| error.to_string())
}

fn required<'a>(credentials: &'a Credentials, key: &str) -> Result<&'a str, Cause> {
    let missing = || format!("the credentials have no {key} (they have: {})", credentials.keys());
    credentials.text(key).ok_or_else(missing)
}

fn s3(settings: &Settings, conditions: Arc<Conditions>) -> Result<Client, Cause> {
    let mut builder = match &settings.credentials {
        Some(credentials) if credentials.identify() => {
            let builder = AmazonS3Builder::new()
                .with_access_key_id(required(credentials, "accessKeyID")?)
                .with_secret_access_key(required(credentials, "secretAccessKey")?)
                .with_client_options(options(settings));
            match credentials.text("sessionToken") {
                Some(token) => builder.with_token(token),
                None => builder,
            }
        }
        _ => AmazonS3Builder::from_env(),
    };
    if let Some(endpoint) = &settings.endpoint {
        let path_style = settings.path_style.unwrap_or(true);
        let endpoint = if path_style { endpoint.clone() } else { with_bucket(endpoint, &settings.bucket)? };
        builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(!path_style);
    } else if let Some(path_style) = settings.path_style {
        builder = builder.with_virtual_hosted_style_request(!path_style);
    }
    if let Some(region) = &settings.region {
        builder = builder.with_region(region);
    }
    let store = builder
        .with_bucket_name(&settings.bucket)
        .with_retry(retry(settings))
        // One request for each object, so that each has an answer of its own.
        .with_disable_bulk_delete(true)
        .with_http_connector(wire(settings, Completion::Header, conditions)?)
        .build()
        .map_err(|error| explain(&error, "the S3 client cannot be made of these settings"))?;
    Ok(Client { objects: Arc::new(store), parks: false, marks: true })
}

/// `https://host` as `https://bucket.host`.
fn with_bucket(endpoint: &str, bucket: &str) -> Result<String, Cause> {
    let unusable = || "the endpoint has no host's name that a bucket could be put before".to_owned();
    let mut url = Url::parse(endpoint).map_err(|_| unusable())?;
    let host = url.domain().map(|domain| format!("{bucket}.{domain}")).ok_or_else(unusable)?;
    url.set_host(Some(&host)).map_err(|_| unusable())?;
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn gcs(settings: &Settings, conditions: Arc<Conditions>) -> Result<Client, Cause> {
    let mut builder = match &settings.credentials {
        Some(credentials) if credentials.identify() => GoogleCloudStorageBuilder::new()
            .with_service_account_key(required(credentials, "serviceaccount.json")?)
            .with_client_options(options(settings)),
        _ => GoogleCloudStorageBuilder::from_env(),
    };
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    let store = builder
        .with_bucket_name(&settings.bucket)
        .with_retry(retry(settings))
        .with_http_connector(wire(settings, Completion::Bare, conditions)?)
        .build()
        .map_err(|error| explain(&error, "serviceaccount.json is not the key file of a service account"))?;
    // Google's multipart uploads refuse every condition, its copies do not.
    Ok(Client { objects: Arc::new(store), parks: true, marks: true })
}

fn azure(settings: &Settings, conditions: Arc<Conditions>) -> Result<Client, Cause> {
    let mut builder = match &settings.credentials {
        Some(credentials) if credentials.identify() => {
            azure_credentials(credentials)?.with_client_options(options(settings))
        }
        _ => MicrosoftAzureBuilder::from_env(),
    };
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    let account = builder.get_config_value(&AzureConfigKey::AccountName).ok_or("no storage account is named")?;
    let completion = match builder.get_config_value(&AzureConfigKey::AccessKey) {
        Some(key) => {
            let key = AzureAccessKey::try_new(&key).map_err(|_| "storageKey is not in base64")?;
            Completion::Signed { account, credential: AzureCredential::AccessKey(key) }
        }
        None => Completion::Header,
    };
    let store = builder
        .with_container_name(&settings.bucket)
        .with_retry(retry(settings))
        .with_http_connector(wire(settings, completion, conditions)?)
        .build()
        .map_err(|error| explain(&error, "the Azure client cannot be made of these settings"))?;
    Ok(Client { objects: Arc::new(store), parks: false, marks: true })
}

fn azure_credentials(credentials: &Credentials) -> Result<MicrosoftAzureBuilder, Cause> {
    let builder = MicrosoftAzureBuilder::new().with_account(required(credentials, "storageAccount")?);
    if let Some(key) = credentials.text("storageKey") {
        return Ok(builder.with_access_key(key));
    }
    if let Some(token) = credentials.text("sasToken") {
        return Ok(builder.with_config(AzureConfigKey::SasKey, token.trim_start_matches('?')));
    }
    if credentials.text("clientID").is_some() {
        return Ok(builder.with_client_secret_authorization(
            required(credentials, "clientID")?,
            required(credentials, "clientSecret")?,
            required(credentials, "tenantID")?,
        ));
    }
    Err(format!("the credentials have none of storageKey, sasToken and clientID (they have: {})", credentials.keys()))
}

fn directory(settings: &Settings) -> Result<Client, Cause> {
    // A directory that is not there is a volume that is not mounted: made by us, it would fill the wrong disk.
    if !Path::new(&settings.bucket).is_dir() {
        return Err("there is no such directory".to_owned());
    }
    let store = LocalFileSystem::new_with_prefix(&settings.bucket)
        .map_err(|_| "the directory cannot be used".to_owned())?
        .with_fsync(true);
    Ok(Client { objects: Arc::new(store), parks: true, marks: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix;

    fn refusal(settings: &Settings) -> String {
        match Client::new(settings, Arc::default()) {
            Ok(_) => panic!("a client was made of {settings:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Misconfigured);
                error.to_string()
            }
        }
    }

    fn with(provider: Provider, entries: &[(&str, &str)]) -> Settings {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Settings {
            credentials: Some(Credentials::new(entries)),
            ..Settings::new(provider, "backups", Prefix::default())
        }
    }

    #[test]
    fn a_key_that_is_missing_is_named_and_none_is_quoted() {
        let cases = [
            (with(Provider::S3, &[("accessKeyID", "canary")]), "secretAccessKey"),
            (with(Provider::Gcs, &[("key.json", "canary")]), "serviceaccount.json"),
            (with(Provider::Gcs, &[("serviceaccount.json", r#"{"private_key": "canary"}"#)]), "serviceaccount.json"),
            (with(Provider::Azure, &[("storageKey", "canary")]), "storageAccount"),
            (with(Provider::Azure, &[("storageAccount", "x")]), "storageKey"),
            (with(Provider::Azure, &[("storageAccount", "x"), ("storageKey", "canary!")]), "storageKey"),
            (with(Provider::Azure, &[("storageAccount", "x"), ("clientID", "canary")]), "clientSecret"),
            (with(Provider::S3, &[("accessKeyID", "x"), ("secretAccessKey", "x"), ("ca.crt", "canary")]), "PEM"),
        ];
        for (settings, key) in cases {
            let said = refusal(&settings);
            assert!(said.contains(key) && !said.contains("canary"), "{said}");
        }
    }

    #[test]
    fn a_directory_that_is_not_mounted_is_not_made() {
        let parent = tempfile::tempdir().unwrap();
        let missing = parent.path().join("missing");
        assert!(
            refusal(&Settings::from_url(&format!("file://{}", missing.display())).unwrap())
                .contains("no such directory")
        );
        assert!(!missing.exists());
    }

    #[test]
    fn a_bucket_goes_before_the_name_of_a_host_and_not_before_an_address() {
        assert_eq!(with_bucket("https://s3.example:9000", "b").unwrap(), "https://b.s3.example:9000");
        assert!(with_bucket("http://127.0.0.1:9000", "b").is_err());
    }
}
