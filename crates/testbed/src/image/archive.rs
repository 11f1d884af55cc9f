//! A whole image in one tar file.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Seek, Write},
    path::Path,
};

use serde_json::{Value, json};

use super::layer::{Blob, Layer, plain_header};
use crate::error::{Result, While};

/// What an image is made of. Layers are listed from the one that changes least to the one that changes most.
#[derive(Debug, Clone)]
pub struct Image {
    reference: String,
    layers: Vec<Layer>,
    entrypoint: Vec<String>,
    user: String,
    environment: Vec<String>,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub reference: String,
    /// Of the manifest: the name by which runtimes know this very image.
    pub digest: String,
    /// Of the configuration: what runtimes report as the image of a container.
    pub id: String,
    pub layers: Vec<String>,
}

impl Image {
    /// `reference` is a full name with host and tag, as containers name it.
    pub fn new(reference: impl Into<String>) -> Self {
        Image {
            reference: reference.into(),
            layers: Vec::new(),
            entrypoint: Vec::new(),
            user: String::new(),
            environment: vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
        }
    }

    #[must_use]
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    #[must_use]
    pub fn entrypoint(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// `uid` or `uid:gid` that containers run as unless they say otherwise.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Writes the archive; a failure leaves no file behind.
    pub fn write(&self, to: &Path) -> Result<Written> {
        let dir = to.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir).while_(|| format!("creating {}", dir.display()))?;
        let mut layers = Vec::new();
        for layer in &self.layers {
            let scratch = tempfile::tempfile_in(dir).while_(|| format!("creating a file in {}", dir.display()))?;
            let blob = layer.write(BufWriter::new(&scratch))?;
            layers.push((blob, scratch));
        }
        let unfinished =
            tempfile::NamedTempFile::new_in(dir).while_(|| format!("creating a file in {}", dir.display()))?;
        let written = self.assemble(unfinished.as_file(), layers).while_(|| format!("writing {}", to.display()))?;
        unfinished.persist(to).map_err(|error| error.error).while_(|| format!("writing {}", to.display()))?;
        Ok(written)
    }

    fn assemble(&self, to: &File, layers: Vec<(Blob, File)>) -> io::Result<Written> {
        let blobs: Vec<_> = layers.iter().map(|(blob, _)| blob.clone()).collect();
        let config = self.config(&blobs).to_string();
        let config_blob = Blob::of(config.as_bytes());
        let manifest = manifest(&config_blob, &blobs).to_string();
        let manifest_blob = Blob::of(manifest.as_bytes());

        let mut archive = tar::Builder::new(BufWriter::new(to));
        for (blob, mut content) in layers {
            content.rewind()?;
            append(&mut archive, &blob.path(), blob.length, BufReader::new(content))?;
        }
        for (path, text) in [
            (config_blob.path(), config),
            (manifest_blob.path(), manifest),
            ("index.json".to_owned(), self.index(&manifest_blob).to_string()),
            ("manifest.json".to_owned(), self.docker_manifest(&config_blob, &blobs).to_string()),
            ("oci-layout".to_owned(), json!({"imageLayoutVersion": "1.0.0"}).to_string()),
        ] {
            append(&mut archive, &path, text.len() as u64, text.as_bytes())?;
        }
        archive.into_inner()?.flush()?;
        Ok(Written {
            reference: self.reference.clone(),
            digest: manifest_blob.digest(),
            id: config_blob.digest(),
            layers: blobs.iter().map(Blob::digest).collect(),
        })
    }

    fn config(&self, layers: &[Blob]) -> Value {
        json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint,
                "Env": self.environment,
                "User": self.user,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(Blob::digest).collect::<Vec<_>>()},
        })
    }

    fn index(&self, manifest: &Blob) -> Value {
        let tag = self.reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest);
        entry["annotations"] = json!({
            "io.containerd.image.name": self.reference,
            "org.opencontainers.image.ref.name": tag,
        });
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        })
    }

    fn docker_manifest(&self, config: &Blob, layers: &[Blob]) -> Value {
        json!([{
            "Config": config.path(),
            "RepoTags": [self.reference],
            "Layers": layers.iter().map(Blob::path).collect::<Vec<_>>(),
        }])
    }
}

fn manifest(config: &Blob, layers: &[Blob]) -> Value {
    let layers = layers.iter().map(|layer| descriptor("application/vnd.oci.image.layer.v1.tar", layer));
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": layers.collect::<Vec<_>>(),
    })
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({"mediaType": media_type, "digest": blob.digest(), "size": blob.length})
}

fn append(archive: &mut tar::Builder<impl Write>, path: &str, length: u64, content: impl Read) -> io::Result<()> {
    let mut header = plain_header();
    header.set_size(length);
    archive.append_data(&mut header, path, content)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sha2::{Digest, Sha256};

    use super::*;
    use crate::image::hex;

    fn image(binary: &str) -> Image {
        Image::new("example.test/app:v1")
            .layer(Layer::new().bytes("/etc/passwd", "root:x:0:0::/:\n", 0o644).directory("/tmp", 0o1777))
            .layer(Layer::new().bytes("/usr/local/bin/app", binary, 0o755).link("/app", "usr/local/bin/app"))
            .entrypoint(["/usr/local/bin/app"])
            .user("65532")
    }

    fn write(image: &Image) -> (Written, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        let written = image.write(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "scratch files were left behind");
        (written, fs::read(path).unwrap())
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(path, content);
        }
        files
    }

    #[test]
    fn the_same_inputs_give_the_same_bytes() {
        assert_eq!(write(&image("one")), write(&image("one")));
    }

    #[test]
    fn a_changed_binary_leaves_the_other_layers_as_they_were() {
        let (before, _) = write(&image("one"));
        let (after, _) = write(&image("two"));
        assert_eq!(before.layers[0], after.layers[0]);
        assert_ne!(before.layers[1], after.layers[1]);
        assert_ne!(before.digest, after.digest);
    }

    #[test]
    fn every_blob_is_named_by_its_digest_and_every_reference_leads_to_a_blob_of_that_size() {
        let (written, archive) = write(&image("one"));
        let files = files(&archive);
        for (path, content) in &files {
            if let Some(named) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(named, hex(&Sha256::digest(content)));
            }
        }
        let parse = |path: &str| serde_json::from_slice::<Value>(&files[path]).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let path = digest.replacen("sha256:", "blobs/sha256/", 1);
            assert_eq!(files[&path].len() as u64, descriptor["size"].as_u64().unwrap());
            path
        };
        let index = parse("index.json");
        assert_eq!(index["manifests"][0]["digest"], Value::from(written.digest));
        let manifest = parse(&blob(&index["manifests"][0]));
        let config = parse(&blob(&manifest["config"]));
        let layers: Vec<_> = manifest["layers"].as_array().unwrap().iter().map(&blob).collect();
        assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), layers.len());
        let docker = parse("manifest.json");
        assert_eq!(docker[0]["Layers"], json!(layers));
        assert_eq!(docker[0]["Config"], json!(blob(&manifest["config"])));
        assert_eq!(docker[0]["RepoTags"], json!(["example.test/app:v1"]));
        assert_eq!(parse("oci-layout")["imageLayoutVersion"], "1.0.0");
    }

    #[test]
    fn a_missing_source_is_named_and_leaves_no_archive() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::new("example.test/app:v1").layer(Layer::new().file("/app", "/nonexistent/app", 0o755));
        let error = image.write(&dir.path().join("image.tar")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/app"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
