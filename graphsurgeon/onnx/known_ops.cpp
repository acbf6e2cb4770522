#include "graphsurgeon/onnx/known_ops.h"

#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>

#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/onnx/raise/raise_microsoft.h"

namespace pare {
namespace {

bool raised_away(const std::string& domain, const std::string& op) {
  return (domain.empty() && (op == "Upsample" || op == "Scatter")) || microsoft_rule(domain, op) != nullptr;
}

bool has_body(const onnx::OpSchema& schema, int opset) {
  return schema.HasFunction() || schema.HasContextDependentFunction() ||
         schema.HasContextDependentFunctionWithOpsetVersion(opset);
}

const onnx::OpSchema* onnx_schema(const std::string& domain, const std::string& op, int opset) {
  return onnx::OpSchemaRegistry::Schema(op, opset, domain == "ai.onnx" ? std::string() : domain);
}

// Nodes after inlining, saturated. Functions call only functions (the call graph has no cycle by now).
class ExpandedSize {
 public:
  explicit ExpandedSize(const onnx::ModelProto& model) {
    for (const auto& function : model.functions())
      functions_[{function.domain(), function.name()}] = &function;
  }
  template <typename Nodes>
  std::uint64_t of(const Nodes& nodes) {
    std::uint64_t total = 0;
    for (const auto& node : nodes) {
      const auto callee = functions_.find({node.domain(), node.op_type()});
      total += callee == functions_.end() ? 1 : of_function(*callee->second);
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) total += of(attribute.g().node());
        for (const auto& graph : attribute.graphs()) total += of(graph.node());
      }
      if (total > limits::kMaxNodes) return limits::kMaxNodes + 1;
    }
    return total;
  }

 private:
  std::uint64_t of_function(const onnx::FunctionProto& function) {
    const auto known = sizes_.find(&function);
    if (known != sizes_.end()) return known->second;
    // Recursion through subgraphs of functions is not seen by onnx's check: a function met again while it
    // is being counted is too large.
    sizes_[&function] = limits::kMaxNodes + 1;
    const std::uint64_t size = of(function.node());
    sizes_[&function] = size;
    return size;
  }

  std::map<std::pair<std::string, std::string>, const onnx::FunctionProto*> functions_;
  std::map<const onnx::FunctionProto*, std::uint64_t> sizes_;
};

template <typename Body>
void guarded(const Body& body) {
  try {
    body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& problem) {
    fail(ErrorCode::kBadFile, "the model's functions cannot be inlined: {}", problem.what());
  }
}

// What onnx's inliner takes for granted.
void check_bodies(const onnx::ModelProto& model, const std::string& directory) {
  onnx::checker::CheckerContext context;
  context.set_model_dir(directory);
  context.set_ir_version(static_cast<int>(model.ir_version()));
  context.set_skip_opset_compatibility_check(true);  // a difference is what the conversion is for
  std::unordered_map<std::string, int> imports;
  for (const auto& import : model.opset_import())
    imports[import.domain()] = static_cast<int>(import.version());
  context.set_opset_imports(std::move(imports));
  onnx::checker::check_model_local_functions(model, context, onnx::checker::LexicalScopeContext());
  for (const auto& function : model.functions()) {
    std::set<std::string> made(function.input().begin(), function.input().end());
    for (const auto& node : function.node()) made.insert(node.output().begin(), node.output().end());
    for (const auto& output : function.output())
      if (made.count(output) == 0)
        fail(ErrorCode::kBadFile, "output '{}' of function '{}' is made by no node of it", output,
             function.name());
  }
}

using Key = std::pair<std::string, std::string>;  // domain, name
using Functions = std::map<Key, const onnx::FunctionProto*>;

Functions by_name(const onnx::ModelProto& model) {
  Functions functions;
  for (const auto& function : model.functions()) functions[{function.domain(), function.name()}] = &function;
  return functions;
}

template <typename Nodes, typename Visit>
void for_each_call(Nodes& nodes, const Functions& functions, const Visit& visit) {
  for (auto& node : nodes) {
    const auto callee = functions.find({node.domain(), node.op_type()});
    if (callee != functions.end()) visit(node, *callee->second);
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) for_each_call(*attribute.mutable_g()->mutable_node(), functions, visit);
  }
}

// Defaults of a function's attributes; the inliner knows none.
void write_defaults(onnx::ModelProto& model) {
  const onnx::ModelProto copy = model;  // functions are looked at while their nodes change
  const Functions functions = by_name(copy);
  const auto add = [](onnx::NodeProto& node, const onnx::FunctionProto& callee) {
    for (const auto& preset : callee.attribute_proto()) {
      bool given = false;
      for (const auto& attribute : node.attribute()) given = given || attribute.name() == preset.name();
      if (!given) *node.add_attribute() = preset;
    }
  };
  for_each_call(*model.mutable_graph()->mutable_node(), functions, add);
  for (auto& function : *model.mutable_functions()) for_each_call(*function.mutable_node(), functions, add);
}

int opset_of(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports) {
  for (const auto& import : imports)
    if (import.domain().empty() || import.domain() == "ai.onnx") return static_cast<int>(import.version());
  return 0;
}

bool opsets_differ(const onnx::ModelProto& model) {
  for (const auto& function : model.functions()) {
    const int opset = opset_of(function.opset_import());
    if (opset != 0 && opset != opset_of(model.opset_import())) return true;
  }
  return false;
}

void inline_local(onnx::ModelProto& model, const std::string& directory) {
  if (model.functions_size() == 0) return;
  guarded([&] { onnx::checker::check_function_call_cycles(model); });
  guarded([&] { check_bodies(model, directory); });
  check_limit(ExpandedSize(model).of(model.graph().node()), limits::kMaxNodes,
              "the number of nodes with functions inlined");
  bool presets = false;
  for (const auto& function : model.functions()) presets = presets || function.attribute_proto_size() > 0;
  if (presets) write_defaults(model);
  const onnx::ModelProto before = model;
  const bool convert = opsets_differ(model);
  guarded([&] { onnx::inliner::InlineLocalFunctions(model, convert); });
  for_each_call(*model.mutable_graph()->mutable_node(), by_name(before),
                [](const onnx::NodeProto& node, const onnx::FunctionProto& callee) {
                  throw make_error(ErrorCode::kUnsupported,
                                   "function '{}' of the model imports opset {}, which cannot be "
                                   "converted to the model's",
                                   callee.name(), opset_of(callee.opset_import()))
                      .at(fmt::format("node '{}' ({})", node.name(), node.op_type()))
                      .hint("export the model with one opset");
                });
}

// The inliner leaves a reference to an attribute that the node does not have: defaults are written out first.
void add_defaults(onnx::NodeProto& node, const onnx::OpSchema& schema) {
  std::set<std::string> given;
  for (const auto& attribute : node.attribute()) given.insert(attribute.name());
  for (const auto& [name, attribute] : schema.attributes())
    if (given.count(name) == 0 && attribute.default_value.has_name())
      *node.add_attribute() = attribute.default_value;
}

// The schema of an operator that is to be replaced by its body, or nullptr.
const onnx::OpSchema* to_inline(const onnx::NodeProto& node, int opset) {
  const std::string domain = node.domain() == "ai.onnx" ? std::string() : node.domain();
  if (find_schema(domain, node.op_type()) != nullptr || raised_away(domain, node.op_type())) return nullptr;
  if (node.op_type() == "Constant") return nullptr;
  const onnx::OpSchema* schema = onnx_schema(domain, node.op_type(), opset);
  return schema != nullptr && has_body(*schema, opset) ? schema : nullptr;
}

// Nodes of a graph and of the graphs inside it.
template <typename Visit>
void for_each_node(onnx::GraphProto& graph, const Visit& visit) {
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) for_each_node(*attribute.mutable_g(), visit);
    visit(node);
  }
}

// One level of function bodies. True when there was anything to inline and it went well; otherwise the model
// is as it was, and check_known says what is unknown.
bool inline_operators(onnx::ModelProto& model, int opset) {
  std::set<std::pair<std::string, std::string>> wanted;
  for_each_node(*model.mutable_graph(), [&](const onnx::NodeProto& node) {
    if (to_inline(node, opset) != nullptr) wanted.emplace(node.domain(), node.op_type());
  });
  if (wanted.empty()) return false;
  onnx::ModelProto changed = model;
  for_each_node(*changed.mutable_graph(), [&](onnx::NodeProto& node) {
    if (const onnx::OpSchema* schema = to_inline(node, opset)) add_defaults(node, *schema);
  });
  try {
    const auto set =
        onnx::inliner::FunctionIdSet::Create(onnx::inliner::FunctionIdVector(wanted.begin(), wanted.end()));
    onnx::inliner::InlineSelectedFunctions(changed, *set, nullptr);
  } catch (const std::exception&) {
    return false;
  }
  model = std::move(changed);
  return true;
}

}  // namespace

void check_known(const std::string& domain, const std::string& op, int opset) {
  if (!domain.empty() || find_schema(domain, op) != nullptr || raised_away(domain, op)) return;
  const onnx::OpSchema* schema = onnx_schema(domain, op, opset);
  std::vector<const char*> names;
  std::vector<std::string> texts;
  for (const OpSchema* known : all_schemas()) texts.emplace_back(known->op);
  for (const std::string& text : texts) names.push_back(text.c_str());
  const std::string nearest = nearest_word(op, names.data(), names.size());
  std::string hint;
  if (schema != nullptr)
    hint = has_body(*schema, opset)
               ? "ONNX defines it by a function body, but the body could not be put in its place here."
               : "It is an operator of ONNX without a function body, so nothing can stand in for it.";
  else
    hint = fmt::format("ONNX has no such operator in opset {}.", opset);
  if (!nearest.empty() && nearest != op) hint += fmt::format(" Was '{}' meant?", nearest);
  hint += " `pare ops` lists the operators of this build.";
  throw make_error(ErrorCode::kUnsupported, "operator '{}' (domain '{}', opset {}) is not known", op,
                   domain.empty() ? "ai.onnx" : domain, opset)
      .hint(hint);
}

void inline_functions(onnx::ModelProto& model, int opset, const std::string& directory) {
  inline_local(model, directory);
  for (int level = 0; level < 8 && inline_operators(model, opset); ++level) {
  }
}

}  // namespace pare
