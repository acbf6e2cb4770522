#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "datasets/text/jinja/interpreter.h"
#include "datasets/text/jinja/python_text.h"

namespace pare::jinja {

// "function.name": of an attribute its attribute; a whole number is a place in a list.
Value Interpreter::attribute_path(const Value& object, const Value& path) const {
  if (path.is_whole()) return item(object, path);
  if (!path.is(Kind::kText)) wrong("an attribute is named by a text");
  Value value = object;
  const std::string dot = ".";
  for (const std::string& part : split_text(path.str(), &dot, -1, false)) {
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    value = item(value,
                 digits && part.size() < 10 ? Value::integer(std::atoll(part.c_str())) : Value::text(part));
  }
  return value;
}

Value Interpreter::select(const Value& subject, const Arguments& given, bool wanted, bool by_attribute) {
  Arguments a = given;
  Value path;
  if (by_attribute) {
    if (a.places.empty()) wrong("selectattr wants an attribute's name");
    path = a.places[0];
    a.places.erase(a.places.begin());
  }
  std::string name;
  if (!a.places.empty()) {
    if (!a.places[0].is(Kind::kText)) wrong("a test is named by a text");
    name = a.places[0].str();
    a.places.erase(a.places.begin());
  }
  List kept;
  for (Value& value : items(subject)) {
    const Value judged = by_attribute ? attribute_path(value, path) : value;
    if ((name.empty() ? truth(judged) : test(name, judged, a)) == wanted) kept.push_back(std::move(value));
  }
  return Value::of(Kind::kGenerator, std::move(kept));
}

Value Interpreter::filter(const std::string& name, Value subject, const Arguments& a) {
  spend(16);
  if (name == "default" || name == "d") {
    const Value* boolean = a.get(1, "boolean");
    const bool missing =
        subject.is(Kind::kUndefined) || (boolean != nullptr && truth(*boolean) && !truth(subject));
    if (!missing) return subject;
    const Value* otherwise = a.get(0, "default_value");
    return otherwise != nullptr ? *otherwise : Value::text("");
  }
  bool known = true;
  Value result = text_filter(name, subject, a, known);
  if (known) return result;
  known = true;
  result = list_filter(name, subject, a, known);
  if (known) return result;
  unknown(fmt::format("the filter '{}' is not known", name));
}

// Filters that give a text or a number.
Value Interpreter::text_filter(const std::string& name, const Value& subject, const Arguments& a,
                               bool& known) {
  if (name == "length" || name == "count") {
    if (subject.is(Kind::kText)) return Value::integer(length_of(subject.str()));
    if (subject.is_sequence()) return Value::integer(static_cast<std::int64_t>(subject.list->size()));
    if (subject.is(Kind::kDict)) return Value::integer(static_cast<std::int64_t>(subject.dict->items.size()));
    if (subject.is(Kind::kUndefined)) return Value::integer(0);
    wrong(fmt::format("a value of type {} has no length", type_name(subject)));
  }
  if (name == "tojson") {
    JsonStyle style;
    const auto flag = [&](std::size_t place, const char* key) {
      const Value* value = a.get(place, key);
      return value != nullptr && truth(*value);
    };
    style.ascii = flag(0, "ensure_ascii");
    style.indent = whole_argument(a, 1, "indent", -1);
    style.sorted = flag(3, "sort_keys");
    if (style.indent > 64) unknown("an indent above 64 is not known");
    if (style.indent >= 0) style.item = ",";
    const Value* separators = a.get(2, "separators");
    if (separators != nullptr && !separators->is(Kind::kNone)) {
      const List parts = items(*separators);
      if (parts.size() != 2 || !parts[0].is(Kind::kText) || !parts[1].is(Kind::kText))
        wrong("separators of tojson are two texts");
      style.item = parts[0].str();
      style.key = parts[1].str();
    }
    return made(to_json(subject, style));
  }
  if (name == "int" || name == "float") {
    const Value* otherwise = a.get(0, "default");
    const auto missing = [&] {
      return otherwise != nullptr ? *otherwise : name == "int" ? Value::integer(0) : Value::floating(0);
    };
    if (a.get(1, "base") != nullptr) unknown("the filter 'int' with a base is not known");
    double value = subject.as_double();
    if (subject.is(Kind::kText)) {
      const std::string text = stripped(subject.str(), nullptr, true, true);
      char* end = nullptr;
      if (text.empty() || text.find_first_not_of("+-0123456789.eE") != std::string::npos) return missing();
      value = std::strtod(text.c_str(), &end);
      if (*end != '\0') return missing();
    } else if (!subject.is_number()) {
      return missing();
    }
    if (name == "float") return Value::floating(value);
    if (subject.is_whole()) return Value::integer(subject.number);
    if (std::isnan(value) || std::fabs(value) > 9e15)
      unknown("whole numbers out of such a value are not known");
    return Value::integer(static_cast<std::int64_t>(value));
  }
  if (name == "abs") {
    if (!subject.is_number()) wrong("abs of what is no number");
    if (subject.is(Kind::kFloat)) return Value::floating(std::fabs(subject.real));
    return Value::integer(subject.number < 0 ? -std::max(subject.number, INT64_MIN + 1) : subject.number);
  }
  if (name == "round") {
    if (!subject.is_number()) wrong("round of what is no number");
    if (whole_argument(a, 0, "precision", 0) != 0 || a.get(1, "method") != nullptr)
      unknown("the filter 'round' with a precision or method is not known");
    return Value::floating(std::nearbyint(subject.as_double()));
  }
  if (name == "join") {
    const Value *between = a.get(0, "d"), *path = a.get(1, "attribute");
    const std::string separator = between != nullptr ? to_text(*between) : "";
    std::string out;
    bool first = true;
    for (const Value& value : items(subject)) {
      const std::string part = to_text(path != nullptr ? attribute_path(value, *path) : value);
      spend(part.size() + separator.size());
      out += (std::exchange(first, false) ? "" : separator) + part;
    }
    return Value::text(std::move(out));
  }
  const bool as_text = name == "trim" || name == "upper" || name == "lower" || name == "capitalize" ||
                       name == "title" || name == "replace" || name == "indent" || name == "string" ||
                       name == "safe" || name == "escape" || name == "e" || name == "forceescape";
  if (!as_text) {
    known = false;
    return {};
  }
  const std::string text = to_text(subject);
  spend(text.size());
  if (name == "trim") {
    const Value* chars = a.get(0, "chars");
    const bool given = chars != nullptr && !chars->is(Kind::kNone);
    return made(stripped(text, given ? &text_argument(a, 0, "chars", "trim") : nullptr, true, true));
  }
  if (name == "upper") return made(raised(text));
  if (name == "lower") return made(lowered(text));
  if (name == "capitalize") return made(capitalized(text));
  if (name == "title") return made(titled(text));
  if (name == "replace") return text_method(text, "replace", a);
  if (name == "string" || name == "safe") return Value::text(text);
  if (name != "indent") return made(html_escaped(text));
  // indent(width=4, first=False, blank=False)
  const Value* width = a.get(0, "width");
  const std::int64_t spaces =
      width != nullptr && width->is(Kind::kText) ? 0 : whole_argument(a, 0, "width", 4);
  if (spaces > 4096) unknown("an indent above 4096 is not known");
  const std::string indent =
      width != nullptr && width->is(Kind::kText)
          ? width->str()
          : std::string(static_cast<std::size_t>(std::max<std::int64_t>(spaces, 0)), ' ');
  const auto flag = [&](std::size_t place, const char* key) {
    const Value* value = a.get(place, key);
    return value != nullptr && truth(*value);
  };
  const std::vector<std::string> lines = lines_of_text(text + "\n");
  spend(lines.size() * indent.size());
  std::string out = flag(1, "first") ? indent : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (flag(2, "blank") || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return made(std::move(out));
}

// Filters over the items of a list or dict.
Value Interpreter::list_filter(const std::string& name, const Value& subject, const Arguments& a,
                               bool& known) {
  const Value* path = a.get(9, "attribute");
  const auto folded = [&](const Value& value, bool exact) {
    return value.is(Kind::kText) && !exact ? Value::text(lowered(value.str())) : value;
  };
  const auto flag = [&](std::size_t place, const char* key) {
    const Value* value = a.get(place, key);
    return value != nullptr && truth(*value);
  };
  const auto less = [&](const Value& x, const Value& y) {
    spend(16);
    bool ordered = false;
    const int order = compare(x, y, ordered);
    if (!ordered) wrong(fmt::format("{} of values of types {} and {}", name, type_name(x), type_name(y)));
    return order < 0;
  };
  // By a key made once for each; equal ones keep their order, also backwards.
  const auto sorted = [&](List list, const auto& key_of, bool backwards) {
    std::vector<std::pair<Value, std::size_t>> keys;
    for (std::size_t i = 0; i < list.size(); ++i) keys.emplace_back(key_of(list[i]), i);
    std::stable_sort(keys.begin(), keys.end(), [&](const auto& x, const auto& y) {
      return backwards ? less(y.first, x.first) : less(x.first, y.first);
    });
    List out;
    for (const auto& [key, i] : keys) out.push_back(list[i]);
    return Value::of(Kind::kList, std::move(out));
  };

  if (name == "list") return Value::of(Kind::kList, items(subject));
  if (name == "first" || name == "last") {
    const List list = items(subject);
    if (list.empty()) return Value::undefined(fmt::format("there is no {} item", name));
    return name == "first" ? list.front() : list.back();
  }
  if (name == "reverse") {
    List list = items(subject);
    std::reverse(list.begin(), list.end());
    if (!subject.is(Kind::kText)) return Value::of(Kind::kGenerator, std::move(list));
    std::string text;
    for (const Value& value : list) text += value.str();
    return made(std::move(text));
  }
  if (name == "select" || name == "reject") return select(subject, a, name == "select", false);
  if (name == "selectattr" || name == "rejectattr") return select(subject, a, name == "selectattr", true);
  if (name == "map") {
    List out;
    if (a.places.empty()) {
      if (path == nullptr) wrong("map wants a filter's name, or an attribute");
      const Value* otherwise = a.get(9, "default");
      for (const Value& value : items(subject)) {
        Value got = attribute_path(value, *path);
        out.push_back(got.is(Kind::kUndefined) && otherwise != nullptr ? *otherwise : got);
      }
    } else {
      if (!a.places[0].is(Kind::kText)) wrong("a filter is named by a text");
      Arguments rest = a;
      rest.places.erase(rest.places.begin());
      for (const Value& value : items(subject)) out.push_back(filter(a.places[0].str(), value, rest));
    }
    return Value::of(Kind::kGenerator, std::move(out));
  }
  if (name == "items") {
    if (subject.is(Kind::kUndefined)) return Value::of(Kind::kGenerator, {});
    if (!subject.is(Kind::kDict)) wrong("items of what is no dict");
    Value pairs = call_method(subject, "items", {});
    pairs.kind = Kind::kGenerator;
    return pairs;
  }
  if (name == "dictsort") {
    if (!subject.is(Kind::kDict)) wrong("dictsort of what is no dict");
    const Value* by = a.get(1, "by");
    const std::size_t part = by != nullptr && to_text(*by) == "value" ? 1 : 0;
    const bool exact = flag(0, "case_sensitive");
    return sorted(
        *call_method(subject, "items", {}).list,
        [&](const Value& pair) { return folded((*pair.list)[part], exact); }, flag(2, "reverse"));
  }
  if (name == "sort" || name == "unique" || name == "min" || name == "max") {
    const bool sort = name == "sort", exact = flag(sort ? 1 : 0, "case_sensitive");
    const Value* by = a.get(sort ? 2 : 1, "attribute");
    const auto key_of = [&](const Value& value) {
      return folded(by != nullptr ? attribute_path(value, *by) : value, exact);
    };
    List list = items(subject);
    if (sort) return sorted(std::move(list), key_of, flag(0, "reverse"));
    if (name == "unique") {
      List keys, out;
      for (const Value& value : list) {
        const Value key = key_of(value);
        spend(keys.size() * 16);
        if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return equal(k, key); })) continue;
        keys.push_back(key);
        out.push_back(value);
      }
      return Value::of(Kind::kGenerator, std::move(out));
    }
    if (list.empty()) return Value::undefined("there is no item");
    std::size_t best = 0;
    for (std::size_t i = 1; i < list.size(); ++i)
      if (name == "min" ? less(key_of(list[i]), key_of(list[best]))
                        : less(key_of(list[best]), key_of(list[i])))
        best = i;
    return list[best];
  }
  if (name == "sum") {
    const Value *by = a.get(0, "attribute"), *start = a.get(1, "start");
    Node plus;
    plus.name = "+";
    plus.line = line_;
    Value sum = start != nullptr ? *start : Value::integer(0);
    for (const Value& value : items(subject))
      sum = binary(plus, sum, by != nullptr ? attribute_path(value, *by) : value);
    return sum;
  }
  if (name == "batch") {
    const std::int64_t size = whole_argument(a, 0, "linecount", 0);
    if (size < 1) wrong("batch wants a size above 0");
    const Value* fill = a.get(1, "fill_with");
    List out;
    for (const Value& value : items(subject)) {
      if (out.empty() || static_cast<std::int64_t>(out.back().list->size()) == size)
        out.push_back(Value::of(Kind::kList, {}));
      out.back().list->push_back(value);
    }
    if (fill != nullptr && !fill->is(Kind::kNone) && !out.empty()) {
      if (size > (1 << 16)) unknown("a batch above 65536 is not known");
      out.back().list->resize(static_cast<std::size_t>(size), *fill);
    }
    return Value::of(Kind::kGenerator, std::move(out));
  }
  known = false;
  return {};
}

}  // namespace pare::jinja
