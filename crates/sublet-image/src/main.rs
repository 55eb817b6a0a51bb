//! Makes a container image of one static binary, without a container engine.
//!
//! The image has one layer with the binary and the names of its user. Nothing in it depends on when and
//! where it was made: times are zero, owners are numbers, and entries have an order, so the same binary
//! gives the same digest.

mod archive;
mod config;
mod layout;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use std::path::PathBuf;

/// An image larger than this is a mistake in the build: debug information, or a second binary.
const IMAGE_BYTES_MAX: usize = 40_000_000;

#[derive(Parser)]
#[command(name = "sublet-image", about = "Makes the container image of Sublet from its static binary")]
struct Arguments {
    /// The static binary
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// The architecture that the binary is for, as OCI names it
    #[arg(long, default_value = "amd64", value_name = "NAME")]
    arch: String,
    /// The name of the image
    #[arg(long, value_name = "NAME:TAG")]
    tag: String,
    /// Where to write `oci/` and `sublet.tar`
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let binary = std::fs::read(&arguments.binary).with_context(|| format!("cannot read {}", arguments.binary.display()))?;
    config::check_binary(&binary, &arguments.arch).with_context(|| format!("{} is no use", arguments.binary.display()))?;
    let image = layout::Image::new(&binary, &arguments.arch)?;
    if image.bytes() > IMAGE_BYTES_MAX {
        bail!("the image would have {} bytes; {IMAGE_BYTES_MAX} are the limit. Was it built with --release?", image.bytes());
    }
    image.write(&arguments.out, &arguments.tag)?;
    println!("{}", image.digest());
    eprintln!("{}: {} bytes compressed, {} unpacked", arguments.tag, image.bytes(), binary.len());
    Ok(())
}
