#include <algorithm>

#include "datasets/text/jinja/interpreter.h"
#include "datasets/text/jinja/python_text.h"
#include "engine/base/unicode.h"

namespace pare::jinja {

bool Interpreter::test(const std::string& name, const Value& subject, const Arguments& a) {
  const auto other = [&]() -> const Value& {
    if (a.places.empty()) wrong(fmt::format("the test '{}' wants a value to compare with", name));
    return a.places[0];
  };
  if (name == "defined") return !subject.is(Kind::kUndefined);
  if (name == "undefined") return subject.is(Kind::kUndefined);
  if (name == "none") return subject.is(Kind::kNone);
  if (name == "string") return subject.is(Kind::kText);
  if (name == "number") return subject.is_number();
  if (name == "integer") return subject.is(Kind::kInt);
  if (name == "float") return subject.is(Kind::kFloat);
  if (name == "boolean") return subject.is(Kind::kBool);
  if (name == "true" || name == "false")
    return subject.is(Kind::kBool) && (subject.number != 0) == (name == "true");
  if (name == "mapping") return subject.is(Kind::kDict);
  if (name == "sequence")
    return subject.is(Kind::kText) || subject.is_sequence() || subject.is(Kind::kDict) ||
           subject.is(Kind::kUndefined);
  if (name == "iterable")
    return subject.is(Kind::kText) || subject.is_sequence() || subject.is(Kind::kDict) ||
           subject.is(Kind::kUndefined) || subject.is(Kind::kGenerator) || subject.is(Kind::kLoop);
  if (name == "callable")
    return subject.is(Kind::kMacro) || subject.is(Kind::kFunction) || subject.is(Kind::kMethod);
  static constexpr std::pair<const char*, const char*> kOrders[] = {
      {"eq", "=="}, {"equalto", "=="}, {"ne", "!="},         {"lt", "<"},  {"lessthan", "<"},
      {"le", "<="}, {"gt", ">"},       {"greaterthan", ">"}, {"ge", ">="}, {"in", "in"}};
  for (const auto& [known, word] : kOrders)
    if (name == known) {
      Node node;
      node.line = line_;
      return compare_with(node, word, subject, other());
    }
  if (name == "sameas") {
    const Value& b = other();
    return subject.kind == b.kind && subject.list == b.list && subject.dict == b.dict && equal(subject, b);
  }
  if (name == "odd" || name == "even" || name == "divisibleby") {
    if (!subject.is_whole()) wrong(fmt::format("the test '{}' of what is no whole number", name));
    if (name != "divisibleby") return (subject.number % 2 == 0) == (name == "even");
    if (!other().is_whole() || other().number == 0)
      wrong("the test 'divisibleby' wants a whole number that is not 0");
    return other().number == -1 || subject.number % other().number == 0;
  }
  if (name == "lower" || name == "upper") {
    const std::u32string all = characters_of(to_text(subject));
    const bool upper = name == "upper";
    return std::any_of(all.begin(), all.end(),
                       [](char32_t c) { return lower_case(c) != c || upper_case(c) != c; }) &&
           std::all_of(all.begin(), all.end(),
                       [&](char32_t c) { return (upper ? upper_case(c) : lower_case(c)) == c; });
  }
  unknown(fmt::format("the test '{}' is not known", name));
}

}  // namespace pare::jinja
