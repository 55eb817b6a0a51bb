//! The image as an OCI layout and as the archive that engines load.

use crate::archive::{self, Entry};
use crate::config;
use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write as _;
use std::path::Path;

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Bytes that are named by their digest.
struct Blob {
    bytes: Vec<u8>,
    media_type: &'static str,
}

impl Blob {
    fn json(value: &Value, media_type: &'static str) -> Self {
        Self { bytes: value.to_string().into_bytes(), media_type }
    }

    fn hex(&self) -> String {
        hex(&self.bytes)
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": format!("sha256:{}", self.hex()), "size": self.bytes.len()})
    }
}

/// A complete image in memory.
pub struct Image {
    arch: String,
    /// Uncompressed, as archives for engines hold it.
    layer_tar: Vec<u8>,
    layer: Blob,
    config: Blob,
    manifest: Blob,
}

impl Image {
    pub fn new(binary: &[u8], arch: &str) -> Result<Self> {
        let layer_tar = archive::write(&[
            Entry::Folder { path: "etc/", mode: 0o755 },
            Entry::File { path: "etc/group", mode: 0o644, bytes: config::GROUP.as_bytes() },
            Entry::File { path: "etc/passwd", mode: 0o644, bytes: config::PASSWD.as_bytes() },
            Entry::File { path: "sublet", mode: 0o755, bytes: binary },
            Entry::Folder { path: "tmp/", mode: 0o1777 },
        ])?;
        // No name and no time in the header.
        let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        encoder.write_all(&layer_tar)?;
        let layer = Blob { bytes: encoder.finish()?, media_type: LAYER_TYPE };
        let config = Blob::json(&config::image_config(arch, &format!("sha256:{}", hex(&layer_tar))), CONFIG_TYPE);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
            "config": config.descriptor(), "layers": [layer.descriptor()],
        });
        let manifest = Blob::json(&manifest, MANIFEST_TYPE);
        Ok(Self { arch: arch.to_string(), layer_tar, layer, config, manifest })
    }

    /// What names the image wherever it is stored.
    pub fn digest(&self) -> String {
        format!("sha256:{}", self.manifest.hex())
    }

    /// What is sent to a registry.
    pub fn bytes(&self) -> usize {
        self.layer.bytes.len() + self.config.bytes.len() + self.manifest.bytes.len()
    }

    /// Writes `oci/` and `sublet.tar`.
    pub fn write(&self, out: &Path, tag: &str) -> Result<()> {
        let oci = out.join("oci");
        let blobs = oci.join("blobs/sha256");
        // Blobs of an earlier build would be carried along for ever.
        let _ = fs::remove_dir_all(&oci);
        fs::create_dir_all(&blobs).with_context(|| format!("cannot create {}", blobs.display()))?;
        let put = |path: &Path, bytes: &[u8]| fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()));
        for blob in [&self.layer, &self.config, &self.manifest] {
            put(&blobs.join(blob.hex()), &blob.bytes)?;
        }
        put(&oci.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        put(&oci.join("index.json"), self.index(tag).to_string().as_bytes())?;
        put(&out.join("sublet.tar"), &self.docker_archive(tag)?)
    }

    fn index(&self, tag: &str) -> Value {
        let mut manifest = self.manifest.descriptor();
        manifest["platform"] = json!({"architecture": self.arch, "os": "linux"});
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [manifest]})
    }

    fn docker_archive(&self, tag: &str) -> Result<Vec<u8>> {
        let config = format!("{}.json", self.config.hex());
        let layer = format!("{}.tar", hex(&self.layer_tar));
        let manifest = json!([{"Config": config, "RepoTags": [tag], "Layers": [layer]}]).to_string();
        archive::write(&[
            Entry::File { path: &config, mode: 0o644, bytes: &self.config.bytes },
            Entry::File { path: &layer, mode: 0o644, bytes: &self.layer_tar },
            Entry::File { path: "manifest.json", mode: 0o644, bytes: manifest.as_bytes() },
        ])
    }
}

fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(out: &Path, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = fs::read(out.join("oci/blobs/sha256").join(digest)).unwrap();
        assert_eq!((hex(&bytes), json!(bytes.len())), (digest.to_string(), descriptor["size"].clone()));
        bytes
    }

    #[test]
    fn a_layout_leads_from_its_index_to_the_binary() {
        let out = tempfile::tempdir().unwrap();
        let image = Image::new(b"binary", "amd64").unwrap();
        image.write(out.path(), "sublet:1").unwrap();
        let index: Value = serde_json::from_slice(&fs::read(out.path().join("oci/index.json")).unwrap()).unwrap();
        assert_eq!(index["manifests"][0]["digest"], image.digest());
        let manifest: Value = serde_json::from_slice(&blob(out.path(), &index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&blob(out.path(), &manifest["config"])).unwrap();
        assert_eq!((&config["config"]["User"], &config["config"]["Entrypoint"][0]), (&json!("65532:65532"), &json!("/sublet")));
        let layer = blob(out.path(), &manifest["layers"][0]);
        let mut unpacked = Vec::new();
        std::io::copy(&mut flate2::read::GzDecoder::new(&layer[..]), &mut unpacked).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&unpacked)));
        let names: Vec<String> =
            tar::Archive::new(&unpacked[..]).entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(names, ["etc/", "etc/group", "etc/passwd", "sublet", "tmp/"]);
    }

    /// A build that cannot be repeated cannot be checked.
    #[test]
    fn the_same_binary_gives_the_same_image() {
        let make = |binary: &[u8]| Image::new(binary, "amd64").unwrap();
        assert_eq!(make(b"one").digest(), make(b"one").digest());
        assert_eq!(make(b"one").docker_archive("a:1").unwrap(), make(b"one").docker_archive("a:1").unwrap());
        assert_ne!(make(b"one").digest(), make(b"two").digest());
    }
}
