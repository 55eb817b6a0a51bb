use super::*;

fn check(script: &str, files: &[&str], expected: Option<(i64, i64)>) {
    let read = |path: &str| files.contains(&path).then(String::new);
    let mut world = World::new(BTreeMap::from([("INDEX".to_string(), "3".to_string())]), &read);
    let expected = expected.map_or(Run::Forever, |(after, code)| Run::Ends { after, code });
    assert_eq!(run_script(script, &mut world), expected, "{script}");
}

#[test]
fn scripts_end_as_they_say() {
    check("exit 0", &[], Some((0, 0)));
    check("echo hello; sleep 5; exit 3", &[], Some((5, 3)));
    check("false || exit 7", &[], Some((0, 7)));
    check("true && false", &[], Some((0, 1)));
    check("sleep 1m && echo 'done; really' >/dev/termination-log 2>&1", &[], Some((60, 0)));
    check("exit $(( $RANDOM / 16384 ))", &[], Some((0, 0)));
    check("# comment\nsleep 0.2\n", &[], Some((1, 0)));
    check("for i in $(seq 1 3); do echo $i; sleep 2; done; exit 1", &[], Some((6, 1)));
    check("if [ $(expr ${INDEX} % 2) -ne 0 ]; then\n exit 1\n else\n exit 0\n fi", &[], Some((0, 1)));
    check("if test -z \"$NONE\"; then if true; then exit 4; fi; fi; exit 5", &[], Some((0, 4)));
    check("! true || exit 9", &[], Some((0, 9)));
    check("(sleep 3; exit 2)", &[], None);
    check("cat /etc/hosts | grep x | wc -l", &[], Some((0, 0)));
}

#[test]
fn files_of_volumes_decide() {
    let script = "if [[ -r /data/foo-$INDEX ]]\nthen\n exit 0\nelse\n touch /data/foo-$INDEX\n exit 42\nfi";
    check(script, &[], Some((0, 42)));
    check(script, &["/data/foo-3"], Some((0, 0)));
}

#[test]
fn files_and_output_hold_what_is_written() {
    let read = |path: &str| (path == "/old").then(|| "one\n".to_string());
    let run = |script: &str| {
        let mut world = World::new(BTreeMap::new(), &read);
        run_script(script, &mut world);
        (world.output, world.written)
    };
    assert_eq!(run("echo -n DONE; /bin/false").0, "DONE");
    assert_eq!(run("echo a > /f; echo b >> /f; cat /f | wc -l").0, "2\n");
    assert_eq!(run("echo two >> /old").1["/old"], "one\ntwo\n");
    assert_eq!(run("echo 'costs $5' ; echo \\$x $").0, "costs $5\n$x $\n");
    let script = "f=/old\ncount=$(echo 'hello' >> $f ; wc -l $f | awk {'print $1'})\nif [ $count -eq 2 ]; then\n echo yes\nfi";
    assert_eq!(run(script).0, "yes\n");
}

#[test]
fn servers_run_on() {
    for script in
        ["nginx -g 'daemon off;'", "while true; do sleep 1; done", "echo start; exec /server", "tail -f /dev/null", "sleep infinity"]
    {
        check(script, &[], None);
    }
    check("nginx & sleep 4", &[], Some((4, 0)));
    check("until false; do echo; done", &[], None);
}
