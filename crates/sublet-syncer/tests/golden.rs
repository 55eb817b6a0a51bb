//! Translations to the host, as files: `golden/KIND/CASE.tenant.yaml` gives `CASE.host.yaml`, or
//! `CASE.refusal.txt`. `UPDATE=1` writes the results anew.

mod support;

use sublet_machinery::ObjectExt;
use sublet_syncer::SyncRules;
use sublet_syncer::engine::plan::finished;
use sublet_syncer::resources::{TO_HOST, Translation};
use support::{World, config, folder, names, read};

#[test]
fn translations_are_as_recorded() {
    let update = std::env::var_os("UPDATE").is_some();
    let world = World::read();
    let (names, config, rules) = (names(), config(), SyncRules::default());
    let translation = Translation { names: &names, config: &config, rules: &rules, view: &world };
    let mut wrong = Vec::new();
    for kind in TO_HOST {
        let cases = folder().join(kind.kind.to_lowercase());
        let mut seen = 0;
        for entry in std::fs::read_dir(&cases).unwrap_or_else(|e| panic!("no goldens for {}: {e}", kind.kind)) {
            let path = entry.expect("readable").path();
            let Some(case) = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".tenant.yaml").map(str::to_string)) else { continue };
            seen += 1;
            let object = read(&path);
            assert_eq!(object.kind(), kind.kind, "{}", path.display());
            let (file, result) = match finished(kind, &object, &translation) {
                Ok(host) => (format!("{case}.host.yaml"), serde_saphyr::to_string(&host).expect("a JSON value is YAML")),
                Err(refusal) => (format!("{case}.refusal.txt"), format!("{refusal}\n")),
            };
            let golden = cases.join(file);
            if update {
                std::fs::write(&golden, &result).expect("writable");
            } else if std::fs::read_to_string(&golden).ok().as_deref() != Some(result.as_str()) {
                wrong.push(format!("{}:\n{result}", golden.display()));
            }
        }
        assert!(seen > 0, "no goldens for {}", kind.kind);
    }
    assert!(wrong.is_empty(), "not as recorded (UPDATE=1 records anew):\n{}", wrong.join("\n"));
}
