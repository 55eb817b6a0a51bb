//! The functions that expressions can call, with their types.

use super::types::{AUTHORIZER, CIDR, DECISION, FORMAT, GROUP_CHECK, IP, PATH_CHECK, QUANTITY, RESOURCE_CHECK, SEMVER, Type, URL};
use std::collections::HashMap;
use std::sync::LazyLock;

/// One way to call a function.
#[derive(Clone, Debug)]
pub(super) struct Overload {
    /// The first argument is the target: `"a".size()`.
    pub(super) is_member: bool,
    pub(super) args: Vec<Type<'static>>,
    pub(super) result: Type<'static>,
}

/// All overloads of a function; `None` when there is no such function.
pub(super) fn overloads(function: &str) -> Option<&'static [Overload]> {
    static TABLE: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(build);
    TABLE.get(function).map(Vec::as_slice)
}

fn build() -> HashMap<&'static str, Vec<Overload>> {
    let mut table: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in DECLARATIONS.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (head, result) = line.rsplit_once(" -> ").expect("a declaration has a result");
        let (name, args) = head.split_once(' ').expect("a declaration has arguments");
        let (is_member, name) = name.strip_prefix('.').map_or((false, name), |name| (true, name));
        let mut tokens = Tokens { rest: args };
        let mut types = Vec::new();
        while let Some(found) = tokens.next_type() {
            types.push(found);
        }
        let result = Tokens { rest: result }.next_type().expect("a declaration has a result");
        table.entry(name).or_default().push(Overload { is_member, args: types, result });
    }
    table
}

struct Tokens<'t> {
    rest: &'t str,
}

impl Tokens<'_> {
    /// Types follow each other with a space between; parameters of types stand in angle brackets.
    fn next_type(&mut self) -> Option<Type<'static>> {
        self.rest = self.rest.trim_start_matches([' ', ',']);
        let end = self.rest.find([' ', ',', '<', '>']).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        self.rest = &self.rest[end..];
        let found = match name {
            "" | "-" => return None,
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "type" => Type::Type,
            "quantity" => Type::Opaque(QUANTITY),
            "url" => Type::Opaque(URL),
            "ip" => Type::Opaque(IP),
            "cidr" => Type::Opaque(CIDR),
            "semver" => Type::Opaque(SEMVER),
            "format" => Type::Opaque(FORMAT),
            "authorizer" => Type::Opaque(AUTHORIZER),
            "pathcheck" => Type::Opaque(PATH_CHECK),
            "groupcheck" => Type::Opaque(GROUP_CHECK),
            "resourcecheck" => Type::Opaque(RESOURCE_CHECK),
            "decision" => Type::Opaque(DECISION),
            "A" => Type::Param('A'),
            "B" => Type::Param('B'),
            "list" => Type::list(self.inner()),
            "optional" => Type::optional(self.inner()),
            "map" => {
                let key = self.inner();
                let value = self.inner();
                Type::Map(Box::new(key), Box::new(value))
            }
            other => unreachable!("the declarations use no type {other}"),
        };
        self.rest = self.rest.strip_prefix('>').unwrap_or(self.rest);
        Some(found)
    }

    fn inner(&mut self) -> Type<'static> {
        self.rest = self.rest.trim_start_matches(['<', ',', ' ']);
        self.next_type().expect("a type has its parameters")
    }
}

/// `function arguments -> result`; a dot before the name makes the first argument the target, `-` says
/// that there are none.
const DECLARATIONS: &str = "
!_ bool -> bool
-_ int -> int
-_ double -> double
_&&_ bool bool -> bool
_||_ bool bool -> bool
_?_:_ bool A A -> A
_==_ A A -> bool
_!=_ A A -> bool
_[_] list<A> int -> A
_[_] map<A,B> A -> B
_[_] optional<list<A>> int -> optional<A>
_[_] optional<map<A,B>> A -> optional<B>
_[?_] list<A> int -> optional<A>
_[?_] map<A,B> A -> optional<B>
_[?_] optional<list<A>> int -> optional<A>
_[?_] optional<map<A,B>> A -> optional<B>
@in A list<A> -> bool
@in A map<A,B> -> bool
_+_ int int -> int
_+_ uint uint -> uint
_+_ double double -> double
_+_ string string -> string
_+_ bytes bytes -> bytes
_+_ list<A> list<A> -> list<A>
_+_ timestamp duration -> timestamp
_+_ duration timestamp -> timestamp
_+_ duration duration -> duration
_-_ int int -> int
_-_ uint uint -> uint
_-_ double double -> double
_-_ timestamp timestamp -> duration
_-_ timestamp duration -> timestamp
_-_ duration duration -> duration
_*_ int int -> int
_*_ uint uint -> uint
_*_ double double -> double
_/_ int int -> int
_/_ uint uint -> uint
_/_ double double -> double
_%_ int int -> int
_%_ uint uint -> uint
dyn A -> dyn
type A -> type
size string -> int
size bytes -> int
size list<A> -> int
size map<A,B> -> int
.size string -> int
.size bytes -> int
.size list<A> -> int
.size map<A,B> -> int
bool bool -> bool
bool string -> bool
int int -> int
int uint -> int
int double -> int
int string -> int
int timestamp -> int
int duration -> int
uint uint -> uint
uint int -> uint
uint double -> uint
uint string -> uint
double double -> double
double int -> double
double uint -> double
double string -> double
string string -> string
string bool -> string
string int -> string
string uint -> string
string double -> string
string bytes -> string
string timestamp -> string
string duration -> string
string ip -> string
string cidr -> string
bytes bytes -> bytes
bytes string -> bytes
timestamp timestamp -> timestamp
timestamp string -> timestamp
timestamp int -> timestamp
duration duration -> duration
duration string -> duration
.getFullYear timestamp -> int
.getFullYear timestamp string -> int
.getMonth timestamp -> int
.getMonth timestamp string -> int
.getDayOfYear timestamp -> int
.getDayOfYear timestamp string -> int
.getDayOfMonth timestamp -> int
.getDayOfMonth timestamp string -> int
.getDate timestamp -> int
.getDate timestamp string -> int
.getDayOfWeek timestamp -> int
.getDayOfWeek timestamp string -> int
.getHours timestamp -> int
.getHours timestamp string -> int
.getHours duration -> int
.getMinutes timestamp -> int
.getMinutes timestamp string -> int
.getMinutes duration -> int
.getSeconds timestamp -> int
.getSeconds timestamp string -> int
.getSeconds duration -> int
.getMilliseconds timestamp -> int
.getMilliseconds timestamp string -> int
.getMilliseconds duration -> int
.contains string string -> bool
.startsWith string string -> bool
.endsWith string string -> bool
.matches string string -> bool
matches string string -> bool
.charAt string int -> string
.indexOf string string -> int
.indexOf string string int -> int
.indexOf list<A> A -> int
.lastIndexOf string string -> int
.lastIndexOf string string int -> int
.lastIndexOf list<A> A -> int
.lowerAscii string -> string
.upperAscii string -> string
.replace string string string -> string
.replace string string string int -> string
.split string string -> list<string>
.split string string int -> list<string>
.substring string int -> string
.substring string int int -> string
.trim string -> string
.format string list<dyn> -> string
strings.quote string -> string
.join list<string> -> string
.join list<string> string -> string
.find string string -> string
.findAll string string -> list<string>
.findAll string string int -> list<string>
.isSorted list<int> -> bool
.isSorted list<uint> -> bool
.isSorted list<double> -> bool
.isSorted list<bool> -> bool
.isSorted list<duration> -> bool
.isSorted list<timestamp> -> bool
.isSorted list<string> -> bool
.isSorted list<bytes> -> bool
.sum list<int> -> int
.sum list<uint> -> uint
.sum list<double> -> double
.sum list<duration> -> duration
.min list<A> -> A
.max list<A> -> A
.slice list<A> int int -> list<A>
.flatten list<list<A>> -> list<A>
.flatten list<dyn> int -> list<dyn>
.sort list<A> -> list<A>
.reverse list<A> -> list<A>
.distinct list<A> -> list<A>
lists.range int -> list<int>
sets.contains list<A> list<A> -> bool
sets.equivalent list<A> list<A> -> bool
sets.intersects list<A> list<A> -> bool
optional.of A -> optional<A>
optional.ofNonZeroValue A -> optional<A>
optional.none - -> optional<A>
.value optional<A> -> A
.hasValue optional<A> -> bool
.or optional<A> optional<A> -> optional<A>
.orValue optional<A> A -> A
url string -> url
isURL string -> bool
.getScheme url -> string
.getHost url -> string
.getHostname url -> string
.getPort url -> string
.getEscapedPath url -> string
.getQuery url -> map<string,list<string>>
quantity string -> quantity
isQuantity string -> bool
sign quantity -> int
.isGreaterThan quantity quantity -> bool
.isLessThan quantity quantity -> bool
.compareTo quantity quantity -> int
.asApproximateFloat quantity -> double
.asInteger quantity -> int
.isInteger quantity -> bool
.add quantity quantity -> quantity
.add quantity int -> quantity
.sub quantity quantity -> quantity
.sub quantity int -> quantity
ip string -> ip
isIP string -> bool
ip.isCanonical string -> bool
.family ip -> int
.isUnspecified ip -> bool
.isLoopback ip -> bool
.isLinkLocalMulticast ip -> bool
.isLinkLocalUnicast ip -> bool
.isGlobalUnicast ip -> bool
cidr string -> cidr
isCIDR string -> bool
.containsIP cidr string -> bool
.containsIP cidr ip -> bool
.containsCIDR cidr string -> bool
.containsCIDR cidr cidr -> bool
.ip cidr -> ip
.prefixLength cidr -> int
.masked cidr -> cidr
semver string -> semver
semver string bool -> semver
isSemver string -> bool
isSemver string bool -> bool
.isGreaterThan semver semver -> bool
.isLessThan semver semver -> bool
.compareTo semver semver -> int
.major semver -> int
.minor semver -> int
.patch semver -> int
jsonpatch.escapeKey string -> string
.validate format string -> optional<list<string>>
format.named string -> optional<format>
format.dns1123Label - -> format
format.dns1123Subdomain - -> format
format.dns1035Label - -> format
format.qualifiedName - -> format
format.dns1123LabelPrefix - -> format
format.dns1123SubdomainPrefix - -> format
format.dns1035LabelPrefix - -> format
format.labelValue - -> format
format.uri - -> format
format.uuid - -> format
format.byte - -> format
format.date - -> format
format.datetime - -> format
.path authorizer string -> pathcheck
.group authorizer string -> groupcheck
.serviceAccount authorizer string string -> authorizer
.resource groupcheck string -> resourcecheck
.subresource resourcecheck string -> resourcecheck
.namespace resourcecheck string -> resourcecheck
.name resourcecheck string -> resourcecheck
.fieldSelector resourcecheck string -> resourcecheck
.labelSelector resourcecheck string -> resourcecheck
.check pathcheck string -> decision
.check resourcecheck string -> decision
.errored decision -> bool
.error decision -> string
.allowed decision -> bool
.reason decision -> string
";
