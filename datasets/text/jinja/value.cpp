#include "datasets/text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/unicode.h"

namespace pare::jinja {

const Value* Dict::find(const std::string& key) const {
  for (const auto& [name, value] : items)
    if (name == key) return &value;
  return nullptr;
}

void Dict::set(const std::string& key, Value value) {
  for (auto& [name, old] : items)
    if (name == key) {
      old = std::move(value);
      return;
    }
  items.emplace_back(key, std::move(value));
}

Value Value::undefined(std::string why) {
  Value v;
  v.text_ = std::make_shared<const std::string>(std::move(why));
  return v;
}
Value Value::none() {
  Value v;
  v.kind = Kind::kNone;
  return v;
}
Value Value::boolean(bool value) {
  Value v;
  v.kind = Kind::kBool;
  v.number = value ? 1 : 0;
  return v;
}
Value Value::integer(std::int64_t value) {
  Value v;
  v.kind = Kind::kInt;
  v.number = value;
  return v;
}
Value Value::floating(double value) {
  Value v;
  v.kind = Kind::kFloat;
  v.real = value;
  return v;
}
Value Value::text(std::string value) {
  Value v;
  v.kind = Kind::kText;
  v.text_ = std::make_shared<const std::string>(std::move(value));
  return v;
}
Value Value::of(Kind kind, List items) {
  Value v;
  v.kind = kind;
  v.list = std::make_shared<List>(std::move(items));
  return v;
}
Value Value::of(Dict dict) {
  Value v;
  v.kind = Kind::kDict;
  v.dict = std::make_shared<Dict>(std::move(dict));
  return v;
}
Value Value::function(std::string name) {
  Value v = text(std::move(name));
  v.kind = Kind::kFunction;
  return v;
}
Value Value::method(Value object, std::string name) {
  Value v = text(std::move(name));
  v.kind = Kind::kMethod;
  v.list = std::make_shared<List>(List{std::move(object)});
  return v;
}

const std::string& Value::str() const {
  static const std::string kNone;
  return text_ != nullptr ? *text_ : kNone;
}

bool truth(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.number != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kText:
      return !value.str().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.list->empty();
    case Kind::kDict:
      return !value.dict->items.empty();
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.number == b.number;
    return a.as_double() == b.as_double();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return a.list == b.list || (a.list->size() == b.list->size() &&
                                  std::equal(a.list->begin(), a.list->end(), b.list->begin(), equal));
    case Kind::kDict: {
      if (a.dict == b.dict) return true;
      if (a.dict->items.size() != b.dict->items.size()) return false;
      for (const auto& [key, value] : a.dict->items) {
        const Value* other = b.dict->find(key);
        if (other == nullptr || !equal(value, *other)) return false;
      }
      return true;
    }
    case Kind::kFunction:
      return a.str() == b.str();
    default:
      return a.list == b.list && a.dict == b.dict && a.loop == b.loop && a.macro == b.macro;
  }
}

int compare(const Value& a, const Value& b, bool& ordered) {
  ordered = true;
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.number < b.number ? -1 : a.number > b.number ? 1 : 0;
    const double x = a.as_double(), y = b.as_double();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) return a.str().compare(b.str());  // UTF-8 keeps the order
  if (a.kind == b.kind && a.is_sequence()) {
    const std::size_t n = std::min(a.list->size(), b.list->size());
    for (std::size_t i = 0; i < n; ++i) {
      if (equal((*a.list)[i], (*b.list)[i])) continue;
      return compare((*a.list)[i], (*b.list)[i], ordered);
    }
    return a.list->size() < b.list->size() ? -1 : a.list->size() > b.list->size() ? 1 : 0;
  }
  ordered = false;
  return 0;
}

std::string type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    default:
      return "function";
  }
}

namespace {

std::string number_text(const Value& value) {
  if (value.is(Kind::kBool)) return value.number != 0 ? "True" : "False";
  if (value.is(Kind::kInt)) return fmt::format("{}", value.number);
  if (std::isnan(value.real)) return "nan";
  if (std::isinf(value.real)) return value.real > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value.real);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// As Python's repr of a str: single quotes unless there are only such inside.
std::string quoted(const std::string& text) {
  const bool twice = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = twice ? '"' : '\'';
  std::string out(1, quote);
  for (std::string_view rest = text; !rest.empty();) {
    const char32_t c = take_character(rest);
    if (c == static_cast<unsigned char>(quote) || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else if ((is_white_space(c) && c != ' ') || (c >= 0x200B && c <= 0x200F) ||
             (c >= 0x202A && c <= 0x202E) || (c >= 0xE000 && c <= 0xF8FF) || c == 0xFEFF)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      append_utf8(out, c);
  }
  return out + quote;
}

}  // namespace

std::string repr(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number_text(value);
    case Kind::kText:
      return quoted(value.str());
    case Kind::kList:
    case Kind::kTuple: {
      std::string out;
      for (const Value& item : *value.list) out += (out.empty() ? "" : ", ") + repr(item);
      if (value.is(Kind::kList)) return "[" + out + "]";
      return "(" + out + (value.list->size() == 1 ? ",)" : ")");
    }
    case Kind::kDict: {
      std::string out;
      for (const auto& [key, item] : value.dict->items)
        out += (out.empty() ? "" : ", ") + quoted(key) + ": " + repr(item);
      return "{" + out + "}";
    }
    default:
      throw make_error(ErrorCode::kUnsupported, "the text of a {} is not known", type_name(value))
          .hint("write prompts in the form that the model was trained on, without its template");
  }
}

std::string to_text(const Value& value) {
  if (value.is(Kind::kText)) return value.str();
  return value.is(Kind::kUndefined) ? "" : repr(value);
}

namespace {

std::string json_text(const std::string& text, bool ascii) {
  std::string out = "\"";
  for (std::string_view rest = text; !rest.empty();) {
    const char32_t c = take_character(rest);
    const auto code = static_cast<unsigned>(c);
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\f')
      out += "\\f";
    else if (c == '\b')
      out += "\\b";
    else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000 && c != 0x7F))
      out += fmt::format("\\u{:04x}", code);
    else if (ascii && c >= 0x10000)
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                         0xDC00 + ((code - 0x10000) & 0x3FF));
    else
      append_utf8(out, c);
  }
  return out + "\"";
}

void write_json(const Value& value, const JsonStyle& style, std::int64_t depth, std::string& out) {
  const auto line = [&](std::int64_t level) {
    if (style.indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(level * style.indent), ' ');
  };
  if (value.is(Kind::kNone)) {
    out += "null";
  } else if (value.is(Kind::kBool)) {
    out += value.number != 0 ? "true" : "false";
  } else if (value.is(Kind::kFloat) && !std::isfinite(value.real)) {
    out += std::isnan(value.real) ? "NaN" : value.real > 0 ? "Infinity" : "-Infinity";
  } else if (value.is_number()) {
    out += number_text(value);
  } else if (value.is(Kind::kText)) {
    out += json_text(value.str(), style.ascii);
  } else if (value.is_sequence()) {
    out += '[';
    for (std::size_t i = 0; i < value.list->size(); ++i) {
      if (i > 0) out += style.item;
      line(depth + 1);
      write_json((*value.list)[i], style, depth + 1, out);
    }
    if (!value.list->empty()) line(depth);
    out += ']';
  } else if (value.is(Kind::kDict)) {
    std::vector<const std::pair<std::string, Value>*> order;
    for (const auto& item : value.dict->items) order.push_back(&item);
    if (style.sorted)
      std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    out += '{';
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out += style.item;
      line(depth + 1);
      out += json_text(order[i]->first, style.ascii) + style.key;
      write_json(order[i]->second, style, depth + 1, out);
    }
    if (!order.empty()) line(depth);
    out += '}';
  } else {
    throw make_error(ErrorCode::kUsage, "JSON has no form for a value of type {}", type_name(value))
        .hint("look at what the messages hold: texts, numbers, lists, objects");
  }
}

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  write_json(value, style, 0, out);
  return out;
}

Value from_json(const Json& json) {
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_float()) return Value::floating(json.get<double>());
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    throw make_error(ErrorCode::kUnsupported, "{} is no whole number of 64 bits", json.get<std::uint64_t>())
        .hint("give numbers of 64 bits with a sign");
  if (json.is_number_integer()) return Value::integer(json.get<std::int64_t>());
  if (json.is_string()) return Value::text(json.get<std::string>());
  if (json.is_array()) {
    List list;
    for (const Json& item : json) list.push_back(from_json(item));
    return Value::of(Kind::kList, std::move(list));
  }
  if (json.is_object()) {
    Dict dict;
    for (const auto& [key, item] : json.items()) dict.items.emplace_back(key, from_json(item));
    return Value::of(std::move(dict));
  }
  return Value::none();
}

}  // namespace pare::jinja
