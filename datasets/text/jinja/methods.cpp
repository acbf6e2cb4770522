#include <algorithm>

#include "datasets/text/jinja/interpreter.h"
#include "datasets/text/jinja/python_text.h"
#include "engine/base/unicode.h"

namespace pare::jinja {
namespace {

Value texts(std::vector<std::string> parts) {
  List list;
  for (std::string& part : parts) list.push_back(Value::text(std::move(part)));
  return Value::of(Kind::kList, std::move(list));
}

}  // namespace

const std::string& Interpreter::text_argument(const Arguments& a, std::size_t place, const char* name,
                                              const char* of) {
  const Value* value = a.get(place, name);
  if (value == nullptr) wrong(fmt::format("{} wants an argument '{}'", of, name));
  if (!value->is(Kind::kText)) wrong(fmt::format("the argument '{}' of {} is no text", name, of));
  return value->str();
}

std::int64_t Interpreter::whole_argument(const Arguments& a, std::size_t place, const char* name,
                                         std::int64_t otherwise) const {
  const Value* value = a.get(place, name);
  if (value == nullptr || value->is(Kind::kNone)) return otherwise;
  if (!value->is_whole()) wrong(fmt::format("the argument '{}' is no whole number", name));
  return value->number;
}

List Interpreter::items(const Value& value) {
  List list;
  switch (value.kind) {
    case Kind::kUndefined:
      return list;
    case Kind::kList:
    case Kind::kTuple:
      spend(value.list->size() * 16);
      return *value.list;
    case Kind::kGenerator:
      list.swap(*value.list);
      return list;
    case Kind::kText:
      spend(value.str().size() * sizeof(Value));
      for (const char32_t c : characters_of(value.str())) list.push_back(Value::text(text_of({&c, 1})));
      return list;
    case Kind::kDict:
      spend(value.dict->items.size() * 16);
      for (const auto& [key, item] : value.dict->items) list.push_back(Value::text(key));
      return list;
    default:
      wrong(fmt::format("a value of type {} has no items", type_name(value)));
  }
}

Value Interpreter::call_method(const Value& object, const std::string& name, const Arguments& a) {
  const auto refused = [&]() {
    unknown(fmt::format("the method '{}' of a {} is not known", name, type_name(object)));
  };
  if (object.is(Kind::kText)) return text_method(object.str(), name, a);
  if (object.is(Kind::kDict)) {
    const auto& own = object.dict->items;
    spend(own.size() * 16);
    List list;
    if (name == "get") {
      const Value* key = a.get(0, "key");
      if (key == nullptr) wrong("get() wants a key");
      const Value* found = key->is(Kind::kText) ? object.dict->find(key->str()) : nullptr;
      const Value* otherwise = a.get(1, "default");
      return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value::none();
    }
    if (name == "items")
      for (const auto& [key, value] : own) list.push_back(Value::of(Kind::kTuple, {Value::text(key), value}));
    else if (name == "keys")
      for (const auto& [key, value] : own) list.push_back(Value::text(key));
    else if (name == "values")
      for (const auto& [key, value] : own) list.push_back(value);
    else if (name == "copy")
      return Value::of(*object.dict);
    else
      refused();
    return Value::of(Kind::kList, std::move(list));
  }
  if (object.is_sequence()) {
    const Value* wanted = a.get(0, "value");
    if (name == "copy") return Value::of(Kind::kList, *object.list);
    if ((name != "count" && name != "index") || wanted == nullptr) refused();
    std::int64_t count = 0;
    for (std::size_t i = 0; i < object.list->size(); ++i) {
      if (!equal((*object.list)[i], *wanted)) continue;
      if (name == "index") return Value::integer(static_cast<std::int64_t>(i));
      ++count;
    }
    if (name == "index") wrong("index() does not find the value");
    return Value::integer(count);
  }
  if (object.is(Kind::kLoop) && name == "cycle") {
    if (a.places.empty()) wrong("cycle() wants values");
    return a.places[object.loop->index % a.places.size()];
  }
  refused();
  return {};
}

Value Interpreter::text_method(const std::string& text, const std::string& name, const Arguments& a) {
  spend(text.size());
  const auto optional = [&](std::size_t place, const char* key) -> const std::string* {
    const Value* value = a.get(place, key);
    return value == nullptr || value->is(Kind::kNone) ? nullptr : &text_argument(a, place, key, name.c_str());
  };
  const auto places = [&](std::size_t most) {
    if (a.places.size() > most || (!a.named.empty() && most == 0))
      unknown(fmt::format("'{}' of a text with {} arguments is not known", name,
                          a.places.size() + a.named.size()));
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return made(stripped(text, optional(0, "chars"), name != "rstrip", name != "lstrip"));
  if (name == "lower" || name == "casefold") return made(lowered(text));
  if (name == "upper") return made(raised(text));
  if (name == "capitalize") return made(capitalized(text));
  if (name == "title") return made(python_titled(text));
  if (name == "split" || name == "rsplit") {
    const std::string* separator = optional(0, "sep");
    if (separator != nullptr && separator->empty()) wrong("split() by an empty text");
    Value parts = texts(split_text(text, separator, whole_argument(a, 1, "maxsplit", -1), name == "rsplit"));
    spend(parts.list->size() * sizeof(Value));
    return parts;
  }
  if (name == "splitlines") {
    places(0);
    Value lines = texts(lines_of_text(text));
    spend(lines.list->size() * sizeof(Value));
    return lines;
  }
  if (name == "partition" || name == "rpartition") {
    const std::string& separator = text_argument(a, 0, "sep", name.c_str());
    const std::size_t at = name == "partition" ? text.find(separator) : text.rfind(separator);
    if (separator.empty()) wrong("partition() by an empty text");
    List parts;
    if (at != std::string::npos)
      parts = {Value::text(text.substr(0, at)), Value::text(separator),
               Value::text(text.substr(at + separator.size()))};
    else if (name == "partition")
      parts = {Value::text(text), Value::text(""), Value::text("")};
    else
      parts = {Value::text(""), Value::text(""), Value::text(text)};
    return Value::of(Kind::kTuple, std::move(parts));
  }
  if (name == "startswith" || name == "endswith") {
    places(1);
    const Value* given = a.get(0, "prefix");
    if (given == nullptr) wrong(name + "() wants a text");
    const List all = given->is(Kind::kTuple) ? *given->list : List{*given};
    for (const Value& part : all) {
      if (!part.is(Kind::kText)) wrong(name + "() wants a text");
      const std::string& p = part.str();
      if (p.size() <= text.size() &&
          text.compare(name == "startswith" ? 0 : text.size() - p.size(), p.size(), p) == 0)
        return Value::boolean(true);
    }
    return Value::boolean(false);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& p = text_argument(a, 0, "prefix", name.c_str());
    const bool front = name == "removeprefix";
    if (p.size() > text.size() || text.compare(front ? 0 : text.size() - p.size(), p.size(), p) != 0)
      return Value::text(text);
    return made(front ? text.substr(p.size()) : text.substr(0, text.size() - p.size()));
  }
  if (name == "replace") {
    const std::string &from = text_argument(a, 0, "old", "replace"),
                      &to = text_argument(a, 1, "new", "replace");
    // Texts grow by this at most: checked before.
    spend(to.size() * (from.empty() ? text.size() + 1 : text.size() / from.size()));
    return made(replaced(text, from, to, whole_argument(a, 2, "count", -1)));
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "count") {
    places(1);
    const std::string& part = text_argument(a, 0, "sub", name.c_str());
    if (name == "count") {
      if (part.empty()) return Value::integer(length_of(text) + 1);
      return Value::integer(static_cast<std::int64_t>(split_text(text, &part, -1, false).size()) - 1);
    }
    const std::size_t at = name == "rfind" ? text.rfind(part) : text.find(part);
    if (at == std::string::npos && name == "index") wrong("index() does not find the text");
    return Value::integer(at == std::string::npos ? -1 : length_of(text.substr(0, at)));
  }
  if (name == "join") {
    const Value* list = a.get(0, "iterable");
    if (list == nullptr) wrong("join() wants a list");
    std::string out;
    bool first = true;
    for (const Value& value : items(*list)) {
      if (!value.is(Kind::kText)) wrong(fmt::format("join() of a value of type {}", type_name(value)));
      spend(value.str().size() + text.size());
      out += (std::exchange(first, false) ? "" : text) + value.str();
    }
    return Value::text(std::move(out));
  }
  if (name == "isspace" || name == "isdigit" || name == "isalpha" || name == "isalnum" || name == "isupper" ||
      name == "islower" || name == "isascii") {
    if (name == "isascii")
      return Value::boolean(
          std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; }));
    const std::u32string all = characters_of(text);
    if (name == "isupper" || name == "islower") {
      const bool upper = name == "isupper";
      const bool some = std::any_of(all.begin(), all.end(),
                                    [](char32_t c) { return lower_case(c) != c || upper_case(c) != c; });
      return Value::boolean(some && std::all_of(all.begin(), all.end(), [&](char32_t c) {
                              return upper ? upper_case(c) == c : lower_case(c) == c;
                            }));
    }
    return Value::boolean(!all.empty() && std::all_of(all.begin(), all.end(), [&](char32_t c) {
      if (name == "isspace") return is_white_space(c);
      const bool digit = c >= '0' && c <= '9', letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (c > 0x7F) unknown(fmt::format("'{}' beyond ASCII is not known", name));
      return name == "isdigit" ? digit : name == "isalpha" ? letter : letter || digit;
    }));
  }
  unknown(fmt::format("the method '{}' of a text is not known", name));
}

}  // namespace pare::jinja
