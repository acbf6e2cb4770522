#include "quant/rules.h"

#include <algorithm>
#include <memory>
#include <regex>

#include "engine/base/error.h"

namespace pare::quant {
namespace {

// A literal, or "re:..." as a full match.
class Pattern {
 public:
  explicit Pattern(const std::string& text) : text_(text) {
    if (text.rfind("re:", 0) != 0) return;
    try {
      regex_ = std::make_unique<std::regex>(text.substr(3), std::regex::ECMAScript);
    } catch (const std::regex_error& error) {
      throw make_error(ErrorCode::kUsage, "'{}' is not a regular expression: {}", text, error.what());
    }
  }
  bool matches(const std::string& word) const {
    return regex_ == nullptr ? word == text_ : std::regex_match(word, *regex_);
  }

 private:
  std::string text_;
  std::unique_ptr<std::regex> regex_;
};

std::vector<Pattern> compile(const std::vector<std::string>& texts) {
  std::vector<Pattern> patterns;
  for (const std::string& text : texts) patterns.emplace_back(text);
  return patterns;
}

bool any(const std::vector<Pattern>& patterns, const std::string& word) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const Pattern& p) { return p.matches(word); });
}

struct CompiledRule {
  const Rule* rule;
  std::vector<Pattern> name, op, tensor;
};

}  // namespace

struct RuleBook::Impl {
  Spec spec;
  std::vector<CompiledRule> rules;
};

RuleBook::RuleBook(const Spec& spec) : impl_(std::make_unique<Impl>()) {
  impl_->spec = spec;
  for (const Rule& rule : impl_->spec.rules)
    impl_->rules.push_back(
        {&rule, compile(rule.match.name), compile(rule.match.op), compile(rule.match.tensor)});
}

RuleBook::~RuleBook() = default;

Resolved RuleBook::resolve(const Graph& graph, const Node& node) const {
  const Spec& spec = impl_->spec;
  Resolved resolved{true, spec.weights, spec.activations, {}};
  if (!spec.ops.empty() && std::find(spec.ops.begin(), spec.ops.end(), node.op) == spec.ops.end()) {
    resolved.quantize = false;
    resolved.why_not = fmt::format("{} is not among the operators asked for", node.op);
  }
  for (std::size_t i = 0; i < impl_->rules.size(); ++i) {
    const CompiledRule& c = impl_->rules[i];
    if (!c.name.empty() && !any(c.name, node.name)) continue;
    if (!c.op.empty() && !any(c.op, node.op)) continue;
    if (!c.tensor.empty()) {
      bool hit = false;
      for (const ValueId in : node.in)
        hit = hit || (in != ValueId::kNone && any(c.tensor, graph.value(in).name));
      if (!hit) continue;
    }
    if (c.rule->quantize) {
      resolved.quantize = *c.rule->quantize;
      resolved.why_not = resolved.quantize ? "" : fmt::format("rule {} says so", i + 1);
    }
    if (c.rule->weights) resolved.weights = *c.rule->weights;
    if (c.rule->activations) resolved.activations = *c.rule->activations;
  }
  return resolved;
}

}  // namespace pare::quant
