#include <cmath>
#include <ctime>

#include "datasets/text/jinja/interpreter.h"
#include "datasets/text/jinja/python_text.h"

namespace pare::jinja {
namespace {

constexpr std::int64_t kMostRange = 100000;  // as jinja2.sandbox has it

// Attributes that Python's own types have, which hide keys of a dict of the same name.
bool is_method(const Value& object, const std::string& name) {
  const auto one_of = [&](std::initializer_list<const char*> names) {
    for (const char* known : names)
      if (name == known) return true;
    return false;
  };
  switch (object.kind) {
    case Kind::kText:
      return one_of({"capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
                     "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
                     "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
                     "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
                     "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
                     "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
                     "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
                     "swapcase",     "title",       "translate", "upper",      "zfill"});
    case Kind::kList:
      return one_of({"append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove",
                     "reverse", "sort"});
    case Kind::kTuple:
      return one_of({"count", "index"});
    case Kind::kDict:
      return one_of({"clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault",
                     "update", "values"});
    case Kind::kLoop:
      return one_of({"cycle", "changed"});
    default:
      return false;
  }
}

}  // namespace

Value Interpreter::eval(const Node& node) {
  const Deeper guard(*this, node.line);
  switch (node.kind) {
    case NodeKind::kLiteral:
      return node.literal;
    case NodeKind::kName:
      return name_value(node);
    case NodeKind::kList:
    case NodeKind::kTuple: {
      List list;
      for (const NodePtr& part : node.args) list.push_back(eval(*part));
      return Value::of(node.kind == NodeKind::kList ? Kind::kList : Kind::kTuple, std::move(list));
    }
    case NodeKind::kDict: {
      Dict dict;
      for (std::size_t i = 0; i < node.args.size(); i += 2) {
        const Value key = eval(*node.args[i]);
        if (!key.is(Kind::kText)) unknown("keys of a dict that are no texts are not known");
        dict.set(key.str(), eval(*node.args[i + 1]));
      }
      return Value::of(std::move(dict));
    }
    case NodeKind::kAttribute:
      return attribute(eval(*node.args[0]), node.name);
    case NodeKind::kIndex: {
      const Value object = eval(*node.args[0]);
      return item(object, eval(*node.args[1]));
    }
    case NodeKind::kSlice:
      return slice(node);
    case NodeKind::kCall:
      return call(node);
    case NodeKind::kFilter: {
      Value subject = node.args[0] != nullptr ? eval(*node.args[0]) : *scope_->find("");
      return filter(node.name, std::move(subject), arguments(node));
    }
    case NodeKind::kTest: {
      const Value subject = eval(*node.args[0]);
      return Value::boolean(test(node.name, subject, arguments(node)));
    }
    case NodeKind::kNot:
      return Value::boolean(!truth(eval(*node.args[0])));
    case NodeKind::kNegative:
    case NodeKind::kPositive: {
      const Value value = eval(*node.args[0]);
      if (!value.is_number()) wrong(fmt::format("a sign in front of a value of type {}", type_name(value)));
      const bool minus = node.kind == NodeKind::kNegative;
      if (value.is(Kind::kFloat)) return Value::floating(minus ? -value.real : value.real);
      if (value.number == INT64_MIN) unknown("whole numbers beyond 64 bits are not known");
      return Value::integer(minus ? -value.number : value.number);
    }
    case NodeKind::kBinary: {
      const Value a = eval(*node.args[0]);
      return binary(node, a, eval(*node.args[1]));
    }
    case NodeKind::kCompare: {
      Value left = eval(*node.args[0]);
      for (std::size_t i = 0; i < node.words.size(); ++i) {
        Value right = eval(*node.args[i + 1]);
        if (!compare_with(node, node.words[i], left, right)) return Value::boolean(false);
        left = std::move(right);
      }
      return Value::boolean(true);
    }
    case NodeKind::kAnd: {
      Value left = eval(*node.args[0]);
      return truth(left) ? eval(*node.args[1]) : left;
    }
    case NodeKind::kOr: {
      Value left = eval(*node.args[0]);
      return truth(left) ? left : eval(*node.args[1]);
    }
    case NodeKind::kConditional:
      if (truth(eval(*node.args[1]))) return eval(*node.args[0]);
      return node.args[2] != nullptr ? eval(*node.args[2])
                                     : Value::undefined("the else of an inline if is missing");
    default:
      unknown("a statement stands where a value is wanted");
  }
}

Value Interpreter::name_value(const Node& node) {
  if (const Value* known = scope_->find(node.name)) return *known;
  for (const char* name : {"range", "namespace", "dict", "raise_exception"})
    if (node.name == name) return Value::function(node.name);
  if (node.name == "strftime_now" && surroundings_.now) return Value::function(node.name);
  for (const char* name : {"lipsum", "cycler", "joiner"})
    if (node.name == name) unknown(fmt::format("the function '{}' is not known", node.name));
  return Value::undefined(fmt::format("'{}' is undefined", node.name));
}

Value Interpreter::attribute(const Value& object, const std::string& name) const {
  if (object.is(Kind::kUndefined)) wrong(fmt::format("{}, and its '{}' is asked for", object.str(), name));
  if (is_method(object, name)) return Value::method(object, name);
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace)) {
    if (const Value* found = object.dict->find(name)) return *found;
  } else if (object.is(Kind::kLoop)) {
    const Loop& loop = *object.loop;
    const auto n = static_cast<std::int64_t>(loop.items->size()), i = static_cast<std::int64_t>(loop.index);
    if (name == "index") return Value::integer(i + 1);
    if (name == "index0") return Value::integer(i);
    if (name == "revindex") return Value::integer(n - i);
    if (name == "revindex0") return Value::integer(n - i - 1);
    if (name == "first") return Value::boolean(i == 0);
    if (name == "last") return Value::boolean(i == n - 1);
    if (name == "length") return Value::integer(n);
    if (name == "depth") return Value::integer(loop.depth);
    if (name == "depth0") return Value::integer(loop.depth - 1);
    if (name == "previtem" && i > 0) return (*loop.items)[loop.index - 1];
    if (name == "nextitem" && i + 1 < n) return (*loop.items)[loop.index + 1];
  }
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

Value Interpreter::item(const Value& object, const Value& key) const {
  if (object.is(Kind::kUndefined)) wrong(fmt::format("{}, and an item of it is asked for", object.str()));
  if (key.is(Kind::kText)) {
    if (object.is(Kind::kDict))
      if (const Value* found = object.dict->find(key.str())) return *found;
    return attribute(object, key.str());
  }
  const auto place = [&](std::int64_t count) { return key.number < 0 ? key.number + count : key.number; };
  if (key.is_whole() && (object.is_sequence() || object.is(Kind::kText))) {
    const std::u32string characters = object.is(Kind::kText) ? characters_of(object.str()) : U"";
    const auto count =
        static_cast<std::int64_t>(object.is(Kind::kText) ? characters.size() : object.list->size());
    const std::int64_t at = place(count);
    if (at >= 0 && at < count) {
      if (object.is(Kind::kText))
        return Value::text(text_of(characters.substr(static_cast<std::size_t>(at), 1)));
      return (*object.list)[static_cast<std::size_t>(at)];
    }
  }
  return Value::undefined(fmt::format("{} has no item {}", type_name(object),
                                      key.is_number() ? to_text(key) : "of type " + type_name(key)));
}

Value Interpreter::slice(const Node& node) {
  const Value object = eval(*node.args[0]);
  const auto part = [&](std::size_t i) -> std::optional<std::int64_t> {
    if (node.args[i] == nullptr) return std::nullopt;
    const Value value = eval(*node.args[i]);
    if (value.is(Kind::kNone)) return std::nullopt;
    if (!value.is_whole()) wrong("an end of a slice is no whole number");
    return value.number;
  };
  const std::optional<std::int64_t> from = part(1), to = part(2), by = part(3);
  if (object.is(Kind::kUndefined)) wrong(fmt::format("{}, and a part of it is asked for", object.str()));
  if (!object.is_sequence() && !object.is(Kind::kText))
    wrong(fmt::format("a part of a value of type {}", type_name(object)));
  const std::u32string characters = object.is(Kind::kText) ? characters_of(object.str()) : U"";
  const auto count =
      static_cast<std::int64_t>(object.is(Kind::kText) ? characters.size() : object.list->size());
  spend(static_cast<std::size_t>(count));
  const std::int64_t step = by.value_or(1);
  if (step == 0) wrong("the step of a slice is 0");
  const auto clamp = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
    if (!at) return otherwise;
    const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
    const std::int64_t value = *at < 0 ? (*at < -count ? low : *at + count) : *at;
    return std::min(std::max(value, low), high);
  };
  const std::int64_t begin = clamp(from, step > 0 ? 0 : count - 1), end = clamp(to, step > 0 ? count : -1);
  std::u32string text;
  List list;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (object.is(Kind::kText))
      text += characters[static_cast<std::size_t>(i)];
    else
      list.push_back((*object.list)[static_cast<std::size_t>(i)]);
    if (step > 0 ? end - i <= step : i - end <= -std::max(step, -count - 1)) break;
    i += step;
  }
  if (object.is(Kind::kText)) return Value::text(text_of(text));
  return Value::of(object.kind, std::move(list));
}

Value Interpreter::binary(const Node& node, const Value& a, const Value& b) {
  const std::string& op = node.name;
  if (op == "~") return made(to_text(a) + to_text(b));
  for (const Value* v : {&a, &b})
    if (v->is(Kind::kUndefined)) wrong(v->str());
  if (op == "+" && a.is(Kind::kText) && b.is(Kind::kText)) return made(a.str() + b.str());
  if (op == "+" && a.is_sequence() && a.kind == b.kind) {
    List list = *a.list;
    list.insert(list.end(), b.list->begin(), b.list->end());
    spend(list.size() * sizeof(Value));
    return Value::of(a.kind, std::move(list));
  }
  if (op == "*" && (a.is(Kind::kText) || b.is(Kind::kText)) && (a.is_whole() || b.is_whole())) {
    const std::string& text = a.is(Kind::kText) ? a.str() : b.str();
    const std::int64_t times = std::max<std::int64_t>(a.is(Kind::kText) ? b.number : a.number, 0);
    if (!text.empty() && times > (std::int64_t{1} << 24) / static_cast<std::int64_t>(text.size()))
      unknown("texts above 16 MiB are not known");
    std::string out;
    for (std::int64_t i = 0; i < times && !text.empty(); ++i) out += text;
    return made(std::move(out));
  }
  if (op == "%" && a.is(Kind::kText)) unknown("'%' behind a text (formatting) is not known");
  if (!a.is_number() || !b.is_number())
    wrong(fmt::format("'{}' between values of types {} and {}", op, type_name(a), type_name(b)));
  const bool whole = a.is_whole() && b.is_whole();
  if (op == "/" || op == "//" || op == "%")
    if (b.as_double() == 0) wrong("a division by 0");
  if (op == "/") return Value::floating(a.as_double() / b.as_double());
  if (op == "**" && !(whole && b.number >= 0)) return Value::floating(std::pow(a.as_double(), b.as_double()));
  if (!whole) {
    const double x = a.as_double(), y = b.as_double();
    if (op == "+") return Value::floating(x + y);
    if (op == "-") return Value::floating(x - y);
    if (op == "*") return Value::floating(x * y);
    if (op == "//") return Value::floating(std::floor(x / y));
    const double rest = std::fmod(x, y);
    return Value::floating(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }
  std::int64_t out = 0;
  bool over = false;
  if (op == "+") {
    over = __builtin_add_overflow(a.number, b.number, &out);
  } else if (op == "-") {
    over = __builtin_sub_overflow(a.number, b.number, &out);
  } else if (op == "*") {
    over = __builtin_mul_overflow(a.number, b.number, &out);
  } else if (op == "**") {
    out = 1;
    std::int64_t base = a.number;
    for (std::int64_t left = b.number; left > 0 && !over; left >>= 1) {
      if ((left & 1) != 0) over = __builtin_mul_overflow(out, base, &out);
      if (left > 1) over = over || __builtin_mul_overflow(base, base, &base);
    }
  } else if (b.number == -1) {
    over = __builtin_sub_overflow(std::int64_t{0}, a.number, &out);
    if (op == "%") out = 0;
  } else {
    const std::int64_t quotient = a.number / b.number, rest = a.number % b.number;
    const bool down = rest != 0 && (rest < 0) != (b.number < 0);
    out = op == "//" ? quotient - (down ? 1 : 0) : rest + (down ? b.number : 0);
  }
  if (over) unknown("whole numbers beyond 64 bits are not known");
  return Value::integer(out);
}

bool Interpreter::contains(const Value& whole, const Value& part) {
  if (whole.is(Kind::kText)) {
    if (!part.is(Kind::kText))
      wrong(fmt::format("'in' looks for a value of type {} in a text", type_name(part)));
    spend(whole.str().size());
    return whole.str().find(part.str()) != std::string::npos;
  }
  if (whole.is(Kind::kDict)) return part.is(Kind::kText) && whole.dict->find(part.str()) != nullptr;
  for (const Value& value : items(whole))
    if (equal(value, part)) return true;
  return false;
}

bool Interpreter::compare_with(const Node& node, const std::string& word, const Value& a, const Value& b) {
  line_ = node.line;
  if (word == "==") return equal(a, b);
  if (word == "!=") return !equal(a, b);
  if (word == "in") return contains(b, a);
  if (word == "not in") return !contains(b, a);
  for (const Value* v : {&a, &b})
    if (v->is(Kind::kUndefined)) wrong(v->str());
  bool ordered = false;
  const int order = compare(a, b, ordered);
  if (!ordered)
    wrong(fmt::format("'{}' between values of types {} and {}", word, type_name(a), type_name(b)));
  const bool nan = (a.is(Kind::kFloat) && std::isnan(a.real)) || (b.is(Kind::kFloat) && std::isnan(b.real));
  if (nan) return false;
  return word == "<" ? order < 0 : word == "<=" ? order <= 0 : word == ">" ? order > 0 : order >= 0;
}

Arguments Interpreter::arguments(const Node& node) {
  Arguments a;
  for (std::size_t i = 1; i < node.args.size(); ++i) a.places.push_back(eval(*node.args[i]));
  for (const auto& [name, value] : node.named) a.named.emplace_back(name, eval(*value));
  return a;
}

Value Interpreter::call(const Node& node) {
  const Value callee = eval(*node.args[0]);
  const Arguments given = arguments(node);
  line_ = node.line;
  switch (callee.kind) {
    case Kind::kMacro:
      return call_macro(node, callee, given);
    case Kind::kMethod:
      return call_method((*callee.list)[0], callee.str(), given);
    case Kind::kFunction:
      return call_function(callee.str(), given);
    case Kind::kUndefined:
      wrong(fmt::format("{}, and it is called", callee.str()));
    default:
      wrong(fmt::format("a value of type {} is called", type_name(callee)));
  }
}

Value Interpreter::call_function(const std::string& name, const Arguments& a) {
  if (name == "raise_exception") {
    const Value* message = a.get(0, "message");
    wrong("the template refuses these messages: " + (message != nullptr ? to_text(*message) : std::string()));
  }
  if (name == "range") {
    std::int64_t from = 0, to = 0, step = 1;
    for (const Value& value : a.places)
      if (!value.is_whole()) wrong("range() takes whole numbers");
    if (a.places.empty() || a.places.size() > 3) wrong("range() takes one to three numbers");
    (a.places.size() == 1 ? to : from) = a.places[0].number;
    if (a.places.size() > 1) to = a.places[1].number;
    if (a.places.size() > 2) step = a.places[2].number;
    if (step == 0) wrong("the step of range() is 0");
    List list;
    for (std::int64_t i = from; step > 0 ? i < to : i > to;) {
      if (static_cast<std::int64_t>(list.size()) >= kMostRange)
        unknown(fmt::format("ranges of more than {} numbers are not known", kMostRange));
      list.push_back(Value::integer(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    spend(list.size() * sizeof(Value));
    return Value::of(Kind::kList, std::move(list));
  }
  if (name == "strftime_now") {
    const auto when = static_cast<std::time_t>(*surroundings_.now);
    std::tm parts{};
    gmtime_r(&when, &parts);  // `now` is local already
    char text[256];
    return Value::text(std::string(
        text,
        std::strftime(text, sizeof text, text_argument(a, 0, "format", "strftime_now").c_str(), &parts)));
  }
  Dict dict;  // namespace(...), dict(...)
  if (!a.places.empty()) {
    if (a.places.size() > 1 || !a.places[0].is(Kind::kDict))
      unknown(fmt::format("{}() takes one dict, or names", name));
    dict = *a.places[0].dict;
  }
  for (const auto& [key, value] : a.named) dict.set(key, value);
  Value made_dict = Value::of(std::move(dict));
  if (name == "namespace") {
    made_dict.kind = Kind::kNamespace;
    namespaces_.push_back(made_dict.dict);
  }
  return made_dict;
}

}  // namespace pare::jinja
