//! Prints the CustomResourceDefinition: `cargo run -p sublet-api --example crd | kubectl apply -f -`.

fn main() {
    println!("{:#}", sublet_api::virtual_cluster_crd());
}
