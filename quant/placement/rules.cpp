#include "quant/placement/rules.h"

#include <algorithm>
#include <memory>
#include <set>

#include "engine/base/error.h"
#include "engine/base/name_pattern.h"
#include "engine/ir/subgraph.h"

namespace pare::quant {
namespace {

std::vector<NamePattern> compile(const std::vector<std::string>& texts) {
  std::vector<NamePattern> patterns;
  for (const std::string& text : texts) patterns.emplace_back(text);
  return patterns;
}

bool any(const std::vector<NamePattern>& patterns, const std::string& word) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const NamePattern& p) { return p.fits(word); });
}

// Reports call a layer by the value that it computes, graphs by the node: both are its name.
std::vector<std::string> layer_names(const Graph& graph, const Node& node) {
  std::vector<std::string> names = {node.name};
  for (const ValueId out : node.out)
    if (out != ValueId::kNone) names.push_back(graph.value(out).name);
  return names;
}

// "" for a name outside of blocks.
std::string block_of(const std::string& name) {
  const auto is_break = [](char c) { return c == '.' || c == '/' || c == '_'; };
  std::string before;
  for (std::size_t begin = 0; begin < name.size();) {
    std::size_t end = begin;
    while (end < name.size() && !is_break(name[end])) ++end;
    const std::string word = name.substr(begin, end - begin);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    for (const char* known : {"layers", "layer", "blocks", "block", "h"})
      if (number && before == known) return word;
    before = word;
    begin = end + 1;
  }
  return "";
}

std::vector<std::string> blocks_of(const Graph& graph, const Node& node) {
  std::vector<std::string> blocks;
  for (const std::string& name : layer_names(graph, node))
    if (std::string block = block_of(name); !block.empty()) blocks.push_back(std::move(block));
  return blocks;
}

std::vector<std::string> constant_types(const Graph& graph, const Node& node) {
  std::vector<std::string> types;
  for (const ValueId in : node.in)
    if (in != ValueId::kNone && graph.value(in).is_constant())
      types.emplace_back(name(graph.value(in).dtype));
  return types;
}

bool any_of(const std::vector<NamePattern>& patterns, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return any(patterns, word); });
}

void list_unmatched(const std::vector<NamePattern>& patterns, const char* what,
                    const std::set<std::string>& words, std::vector<std::string>& out) {
  for (const NamePattern& pattern : patterns) {
    if (std::any_of(words.begin(), words.end(), [&](const std::string& w) { return pattern.fits(w); }))
      continue;
    std::vector<const char*> known;
    for (const std::string& word : words) known.push_back(word.c_str());
    std::string near = nearest_word(pattern.text(), known.data(), known.size());
    if (pattern.is_pattern() &&
        std::any_of(words.begin(), words.end(),
                    [wider = NamePattern(pattern.wider())](const std::string& w) { return wider.fits(w); }))
      near = pattern.wider();  // patterns fit whole names
    out.push_back(fmt::format("a rule names '{}', which no {} of the model is called{}", pattern.text(), what,
                              near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
}

struct CompiledRule {
  const Rule* rule;
  std::vector<NamePattern> name, op, tensor, dtype, block;
};

}  // namespace

struct RuleBook::Impl {
  Spec spec;
  std::vector<CompiledRule> rules;
};

RuleBook::RuleBook(const Spec& spec) : impl_(std::make_unique<Impl>()) {
  impl_->spec = spec;
  for (const Rule& rule : impl_->spec.rules)
    impl_->rules.push_back({&rule, compile(rule.match.name), compile(rule.match.op),
                            compile(rule.match.tensor), compile(rule.match.dtype),
                            compile(rule.match.block)});
}

RuleBook::~RuleBook() = default;

Resolved RuleBook::resolve(const Graph& graph, const Node& node) const {
  const Spec& spec = impl_->spec;
  Resolved resolved{true, spec.weights, spec.activations, spec.method, {}, false};
  if (!spec.ops.empty() && std::find(spec.ops.begin(), spec.ops.end(), node.op) == spec.ops.end()) {
    resolved.quantize = false;
    resolved.why_not = fmt::format("{} is not among the operators asked for", node.op);
  }
  for (std::size_t i = 0; i < impl_->rules.size(); ++i) {
    const CompiledRule& c = impl_->rules[i];
    if (!c.name.empty() && !any_of(c.name, layer_names(graph, node))) continue;
    if (!c.op.empty() && !any(c.op, node.op)) continue;
    if (!c.dtype.empty() && !any_of(c.dtype, constant_types(graph, node))) continue;
    if (!c.block.empty() && !any_of(c.block, blocks_of(graph, node))) continue;
    if (!c.tensor.empty()) {
      bool hit = false;
      for (const ValueId in : node.in)
        hit = hit || (in != ValueId::kNone && any(c.tensor, graph.value(in).name));
      if (!hit) continue;
    }
    if (c.rule->quantize) {
      resolved.quantize = *c.rule->quantize;
      resolved.by_rule = !resolved.quantize;
      const std::string& origin = c.rule->origin;
      resolved.why_not = resolved.quantize      ? ""
                         : !c.rule->why.empty() ? c.rule->why
                         : origin.empty()       ? fmt::format("rule {} says so", i + 1)
                                                : origin + " says so";
    }
    if (c.rule->weights) resolved.weights = *c.rule->weights;
    if (c.rule->activations) resolved.activations = *c.rule->activations;
    if (c.rule->method) resolved.method = *c.rule->method;
  }
  return resolved;
}

std::vector<std::string> RuleBook::unmatched(const Graph& graph) const {
  std::vector<std::string> list;
  if (impl_->rules.empty()) return list;
  std::set<std::string> layers, ops, tensors, types, blocks;
  walk_graphs(graph, [&](const SubgraphPath&, const Graph& scope) {
    for (const NodeId id : scope.nodes()) {
      const Node& node = scope.node(id);
      ops.insert(node.op);
      for (std::string& name : layer_names(scope, node)) layers.insert(std::move(name));
      for (const ValueId in : node.in)
        if (in != ValueId::kNone) tensors.insert(scope.value(in).name);
      for (std::string& type : constant_types(scope, node)) types.insert(std::move(type));
      for (std::string& block : blocks_of(scope, node)) blocks.insert(std::move(block));
    }
  });
  for (const CompiledRule& c : impl_->rules) {
    list_unmatched(c.name, "layer", layers, list);
    list_unmatched(c.op, "operator", ops, list);
    list_unmatched(c.tensor, "tensor", tensors, list);
    list_unmatched(c.dtype, "element type of a constant", types, list);
    list_unmatched(c.block, "block", blocks, list);
  }
  return list;
}

}  // namespace pare::quant
