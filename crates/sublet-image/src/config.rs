//! What the image says of itself, and what its binary must be.

use anyhow::{Result, bail};
use serde_json::{Value, json};

/// The user that the binary runs as: nobody that a node knows.
pub const USER: u32 = 65532;
pub const PASSWD: &str = "root:x:0:0:root:/:/none\nsublet:x:65532:65532:sublet:/var/lib/sublet:/none\n";
pub const GROUP: &str = "root:x:0:\nsublet:x:65532:\n";

/// The OCI image configuration.
pub fn image_config(arch: &str, layer_diff_id: &str) -> Value {
    json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": arch,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/sublet"],
            "Env": ["PATH=/", "HOME=/var/lib/sublet"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "sublet",
                "org.opencontainers.image.description": "Virtual clusters for Kubernetes",
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_diff_id]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "sublet-image"}],
    })
}

const ELF_MAGIC: &[u8] = b"\x7fELF";
/// Program header type that names a dynamic loader, which an empty root does not have.
const PT_INTERP: u32 = 3;

/// Refuses what would not start in an empty root on this architecture.
pub fn check_binary(bytes: &[u8], arch: &str) -> Result<()> {
    let machine = match arch {
        "amd64" => 62,
        "arm64" => 183,
        other => bail!("architecture `{other}` is not known; use amd64 or arm64"),
    };
    let (Some(found), Some(table), Some(size), Some(count)) =
        (number(bytes, 18, 2), number(bytes, 32, 8), number(bytes, 54, 2), number(bytes, 56, 2))
    else {
        bail!("it is no ELF binary")
    };
    // Class 2: 64 bits; data 1: little endian.
    if !bytes.starts_with(ELF_MAGIC) || bytes[4] != 2 || bytes[5] != 1 {
        bail!("it is no 64-bit ELF binary")
    }
    if found != machine {
        bail!("it is for ELF machine {found}, and {arch} is {machine}");
    }
    for index in 0..count {
        let kind = table.checked_add(index * size).and_then(|at| number(bytes, usize::try_from(at).ok()?, 4));
        if kind == Some(u64::from(PT_INTERP)) {
            bail!("it is linked dynamically; build it with `-C target-feature=+crt-static`, as images/build does");
        }
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The smallest ELF file that is told from another one.
    pub fn elf(machine: u8, program_header: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = machine;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64] = program_header;
        bytes
    }

    #[test]
    fn a_binary_that_would_not_start_is_refused() {
        let check = |bytes: &[u8], arch| check_binary(bytes, arch).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(check(&elf(62, 1), "amd64"), "");
        assert_eq!(check(&elf(183, 1), "arm64"), "");
        assert!(check(&elf(62, 1), "arm64").contains("machine 62"));
        assert!(check(&elf(62, 3), "amd64").contains("dynamically"));
        assert!(check(b"#!/bin/sh", "amd64").contains("no ELF"));
        assert!(check(&elf(62, 1), "riscv").contains("not known"));
    }
}
