//! Documents that grow as they are read.

/// A ConfigMap in YAML with aliases of aliases: half a kilobyte that stands for hundreds of millions of texts.
pub fn nested_aliases() -> String {
    let mut text = String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nx0: &x0 [a,a,a,a,a,a,a,a,a]\n");
    for i in 1..9 {
        let before = format!("*x{}", i - 1);
        text.push_str(&format!("x{i}: &x{i} [{}]\n", vec![before; 9].join(",")));
    }
    text
}
