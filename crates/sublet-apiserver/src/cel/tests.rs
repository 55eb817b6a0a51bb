use super::*;
use serde_json::{Value, json};
use sublet_machinery::structural::build_plain;

/// The result of an expression without variables, as text.
fn run(text: &str) -> String {
    let compiled = match compile(text, &[("d", Type::Dyn)], None) {
        Ok(compiled) => compiled,
        Err(error) => return error.to_string(),
    };
    match compiled.program.eval(&[("d", Val::Null)], CALL_COST_MAX).0 {
        Ok(value) => functions_text(&value),
        Err(error) => format!("error: {error}"),
    }
}

fn functions_text(value: &Val<'_>) -> String {
    match value {
        Val::Optional(None) => "none".into(),
        Val::Optional(Some(inner)) => format!("some({})", functions_text(inner)),
        value => functions::text_of(value).unwrap_or_else(|| format!("{value:?}")),
    }
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(run(text), *expected, "{text}");
    }
}

#[test]
fn operators_follow_the_language() {
    check(&[
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3 - -1", "10"),
        ("7 / 2", "3"),
        ("-7 % 3", "-1"),
        ("1u + 2u", "3"),
        ("0x10 + 1", "17"),
        ("1.5 * 2.0", "3"),
        ("'a' + \"b\" + r'\\n'", "ab\\n"),
        ("'\\u00e9\\n' == 'é\\n'", "true"),
        ("[1, 2] + [3]", "[1, 2, 3]"),
        ("2 in [1, 2]", "true"),
        ("'a' in {'a': 1}", "true"),
        ("{'a': 1}.a == {'a': 1}['a']", "true"),
        ("1 < 2.5 && 2u > 1", "true"),
        ("1 == 1 ? 'y' : 'n'", "y"),
        ("!true || false", "false"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("1 / 0", "error: division by zero"),
        ("[1][1]", "error: index out of bounds: 1"),
        ("{'a': 1}['b']", "error: no such key: b"),
        // One decided side is enough.
        ("1 / 0 == 1 || true", "true"),
        ("false && 1 / 0 == 1", "false"),
        ("dyn(1) == dyn('a')", "false"),
        ("[1, 2] == [1, 2] && {'a': [1]} == {'a': [1]}", "true"),
        ("type(1) == int && type('') == string && type([]) == list", "true"),
        ("b'abc' == bytes('abc')", "true"),
        ("size('äö') + size([1, 2, 3]) + 'x'.size()", "6"),
    ]);
}

#[test]
fn macros_walk_lists_and_maps() {
    check(&[
        ("[1, 2, 3].all(x, x > 0)", "true"),
        ("[1, 2, 3].exists(x, x > 2)", "true"),
        ("[1, 2, 2].exists_one(x, x == 2)", "false"),
        ("[1, 2, 3].filter(x, x > 1).map(x, x * x)", "[4, 9]"),
        ("[1, 2, 3].map(x, x > 1, x + 1)", "[3, 4]"),
        ("{'a': 1, 'b': 2}.all(k, k != 'c')", "true"),
        ("{'a': 1}.all(k, v, v == 1)", "true"),
        ("['x', 'y'].transformList(i, v, v + string(i))", "[\"x0\", \"y1\"]"),
        ("{'a': 1}.transformMap(k, v, v + 1)", "{\"a\":2}"),
        ("[[1, 2], [3]].map(l, l.size())", "[2, 1]"),
        ("[3, 1, 2].sortBy(x, -x)", "[3, 2, 1]"),
        ("has({'a': 1}.a) && !has({'a': 1}.b)", "true"),
        ("[1, 0].exists(x, 1 / x == 1)", "true"),
        ("[0, 2].all(x, 1 / x == 5)", "false"),
    ]);
}

#[test]
fn optionals_hold_a_value_or_none() {
    check(&[
        ("optional.of(1).value()", "1"),
        ("optional.none().hasValue()", "false"),
        ("{'a': 1}[?'b'].orValue(7)", "7"),
        ("{'a': {'b': 1}}.?a.?b.orValue(0)", "1"),
        ("[1][?3].hasValue()", "false"),
        ("optional.of(2).optMap(x, x + 1).value()", "3"),
        ("[?optional.none(), 1]", "[1]"),
        ("{?'a': optional.none(), 'b': 1}", "{\"b\":1}"),
        ("optional.ofNonZeroValue('').or(optional.of('x')).value()", "x"),
    ]);
}

#[test]
fn strings_have_their_library() {
    check(&[
        ("'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')", "true"),
        ("'abc'.matches('^a.c$')", "true"),
        ("'tacocat'.indexOf('c') + 'tacocat'.lastIndexOf('c')", "6"),
        ("'tacocat'.substring(4) + 'tacocat'.substring(0, 4)", "cattaco"),
        ("'a,b,c'.split(',', 2)", "[\"a\", \"b,c\"]"),
        ("'abc'.split('')", "[\"a\", \"b\", \"c\"]"),
        ("'wello wello'.replace('we', 'he', 1)", "hello wello"),
        ("' x '.trim() + 'AB'.lowerAscii() + 'ab'.upperAscii()", "xabAB"),
        ("['a', 'b'].join('-')", "a-b"),
        ("'abc'.charAt(1)", "b"),
        ("'%s has %d of %s, %.2f'.format(['x', 2, [1, 'a'], 1.5])", "x has 2 of [1, \"a\"], 1.50"),
        ("'%x %b %o %e'.format([255, 5, 8, 1234.5])", "ff 101 10 1.234500×10⁰³"),
        ("'abc 123'.find('[0-9]+') + string('a1b2'.findAll('[0-9]').size())", "1232"),
        ("'x'.substring(2)", "error: index out of range: 2"),
        ("strings.quote('a\"b')", "\"a\\\"b\""),
    ]);
}

#[test]
fn kubernetes_libraries_are_there() {
    check(&[
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", "true"),
        ("quantity('1500m').compareTo(quantity('1.5'))", "0"),
        ("quantity('50k').add(quantity('20')).asInteger()", "50020"),
        ("isQuantity('1x')", "false"),
        ("quantity('200M').sub(1).isInteger()", "true"),
        ("url('https://user@example.com:80/path?k=a&k=b').getHost()", "example.com:80"),
        ("url('https://example.com:80/path?k=a&k=b').getQuery()", "{\"k\":[\"a\", \"b\"]}"),
        ("isURL('somewhere')", "false"),
        ("ip('192.168.0.1').family() + ip('::1').family()", "10"),
        ("ip('127.0.0.1').isLoopback() && ip.isCanonical('::1') && !isIP('1.2.3')", "true"),
        ("cidr('192.168.0.0/16').containsIP('192.168.3.4') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", "true"),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('192.168.1.5/24').masked() == cidr('192.168.1.0/24')", "true"),
        ("cidr('::/0').prefixLength()", "0"),
        ("semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('v1.0', true) && !isSemver('1.0')", "true"),
        ("semver('1.0.0-alpha').compareTo(semver('1.0.0'))", "-1"),
        ("[1, 2, 3].sum() + [4, 1].min() + [4, 1].max()", "11"),
        ("[1, 2, 2].isSorted() && [3, 1, 3].indexOf(3) == 0 && [3, 1, 3].lastIndexOf(3) == 2", "true"),
        ("sets.contains([1, 2], [2]) && sets.equivalent([1, 1], [1]) && sets.intersects([1], [1, 2])", "true"),
        (
            "[1, 2, 3].slice(1, 3) + [[1], [2]].flatten() + [2, 1].sort() + [1, 2].reverse() + [1, 1].distinct()",
            "[2, 3, 1, 2, 1, 2, 2, 1, 1]",
        ),
        ("lists.range(3)", "[0, 1, 2]"),
        ("format.dns1123Label().validate('a-b').hasValue()", "false"),
        ("format.named('uuid').value().validate('x').value()", "[\"does not match the UUID format\"]"),
        ("duration('1h') + duration('1m') == duration('61m')", "true"),
        ("timestamp('2020-01-02T03:04:05Z').getFullYear() + timestamp('2020-01-02T03:04:05Z').getMonth()", "2020"),
        ("timestamp('2020-01-02T03:04:05Z').getHours('-03:00')", "0"),
        ("timestamp('2020-01-02T00:00:00Z') - timestamp('2020-01-01T00:00:00Z') == duration('24h')", "true"),
        ("string(duration('1h30m')) + string(timestamp('2020-01-01T00:00:00Z'))", "5400s2020-01-01T00:00:00Z"),
        ("int('5') + int(2.9) + int(3u)", "10"),
        ("double('1.5') + double(1)", "2.5"),
        ("bool('true') && string(1.0) == '1'", "true"),
    ]);
}

#[test]
fn mistakes_are_shown_with_their_place() {
    check(&[
        ("x == 1", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x == 1\n | ^"),
        (
            "1 + 'a'",
            "compilation failed: ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^",
        ),
        (
            "'a'.size(1)",
            "compilation failed: ERROR: <input>:1:9: found no matching overload for 'size' applied to 'string.(int)'\n | 'a'.size(1)\n | ........^",
        ),
        ("foo(1)", "compilation failed: ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^"),
        ("[1, 'a']", "compilation failed: ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
        (
            "1 +",
            "compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
        ),
        (
            "1.all(x, true)",
            "compilation failed: ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | 1.all(x, true)\n | ^",
        ),
    ]);
    assert!(run(&"(".repeat(500)).contains("recursion limit exceeded"));
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 10}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
        "a-b": {"type": "string"}, "namespace": {"type": "string"},
        "ios": {"x-kubernetes-int-or-string": true}, "dur": {"type": "string", "format": "duration"},
        "time": {"type": "string", "format": "date-time"}, "bytes": {"type": "string", "format": "byte"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "nul": {"type": "string", "nullable": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }})
}

fn on_self(text: &str, object: &Value) -> String {
    let schema = build_plain(&schema());
    let node = schema.node();
    let compiled = match compile(text, &[("self", declare(node).expect("an object has a type"))], Some(node)) {
        Ok(compiled) => compiled,
        Err(error) => return error.to_string().lines().next().unwrap_or_default().to_string(),
    };
    let value = of_json(object, Some(node), false).expect("the object fits");
    match compiled.program.eval(&[("self", value)], CALL_COST_MAX).0 {
        Ok(value) => functions_text(&value),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn objects_are_seen_through_their_schema() {
    let object = json!({"s": "x", "i": 3, "n": 2, "a-b": "ab", "namespace": "ns", "ios": "50%", "dur": "1h", "time": "2020-01-01T00:00:00Z",
        "bytes": "YWJj", "list": [{"x": 1}, {"x": 2}], "set": ["a", "b"], "map": {"k": 1}, "nul": null, "free": {"y": 1}});
    for (text, expected) in [
        ("self.s + self.a__dash__b + self.__namespace__", "xabns"),
        ("self.i + 1 == 4 && self.n == 2.0 && has(self.i) && !has(self.b)", "true"),
        ("self.list.all(e, e.x > 0) && self.list[1].x == 2", "true"),
        ("self.map['k'] + self.map.k", "2"),
        ("self.set == ['b', 'a']", "true"),
        ("type(self.ios) == string && self.ios.endsWith('%')", "true"),
        ("self.dur == duration('60m') && self.time.getFullYear() == 2020 && self.bytes == b'abc'", "true"),
        ("self.b", "error: no such key: b"),
        ("self.zzz", "compilation failed: ERROR: <input>:1:5: undefined field 'zzz'"),
        ("self.free.y", "compilation failed: ERROR: <input>:1:10: undefined field 'y'"),
        ("self.s == null", "compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(string, null)'"),
        ("self.?b.orValue(true)", "true"),
        ("self.set + ['b', 'c']", "[\"a\", \"b\", \"c\"]"),
    ] {
        assert_eq!(on_self(text, &object), expected, "{text}");
    }
}

#[test]
fn costs_are_bounded_before_and_while_running() {
    let schema = build_plain(&schema());
    let node = schema.node();
    let cost = |text: &str| {
        compile(text, &[("self", declare(node).expect("an object has a type"))], Some(node)).expect("the expression is right").cost_max
    };
    assert_eq!(cost("self.s == 'abc'"), 3);
    assert_eq!(cost("self.list.all(e, e.x > 0)"), 2 + 1 + (3 * 1024 * 1024 - 2) / 3 * (2 + 1 + 3));
    assert!(cost("self.list.all(a, self.list.all(b, a.x == b.x))") > 100_000_000);
    let items: Vec<Value> = (0..2000).map(|x| json!({"x": x})).collect();
    let object = json!({"list": items});
    assert_eq!(
        on_self("self.list.all(a, self.list.all(b, a.x <= 2000 && b.x <= 2000))", &object),
        "error: operation cancelled: actual cost limit exceeded"
    );
}
