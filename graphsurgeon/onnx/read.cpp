#include "graphsurgeon/onnx/read.h"

#include <google/protobuf/stubs/logging.h>

#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/reader_hints.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/onnx/check.h"
#include "graphsurgeon/onnx/external_data.h"
#include "graphsurgeon/onnx/external_store.h"
#include "graphsurgeon/onnx/fallback.h"
#include "graphsurgeon/onnx/header.h"
#include "graphsurgeon/onnx/import_graph.h"
#include "graphsurgeon/onnx/known_ops.h"
#include "graphsurgeon/onnx/sort_nodes.h"
#include "graphsurgeon/onnx/wire_scan.h"

namespace pare {
namespace {

constexpr std::int64_t kNewestIr = 13;  // of onnx 1.22
constexpr ReaderHints kHints = {
    "the file is no ONNX model, is cut short or damaged: export or copy it again (onnx.checker of Python "
    "looks "
    "at it, too)",
    "export the model with another opset, or without this operator or form; `pare ops` lists what is known"};
constexpr const char* kDamaged = kHints.damaged;

void parse(const std::string& message, onnx::ModelProto& model) {
  const google::protobuf::LogSilencer silence;  // libraries never print
  if (!model.ParseFromString(message))
    throw make_error(ErrorCode::kBadFile, "the file is not a valid ONNX protobuf message").hint(kDamaged);
}

std::map<std::string, int> read_opsets(const onnx::ModelProto& model) {
  std::map<std::string, int> opsets;
  for (const auto& import : model.opset_import()) {
    const std::string domain = import.domain() == "ai.onnx" ? std::string() : import.domain();
    const std::int64_t version = import.version();
    if (version < 0 || version > 1'000'000)
      fail(ErrorCode::kBadFile, "opset {} of domain '{}'", version, domain);
    opsets[domain] = static_cast<int>(version);
  }
  return opsets;
}

void check_header(const onnx::ModelProto& model, const std::map<std::string, int>& opsets) {
  if (!model.has_graph() || (model.ir_version() == 0 && opsets.empty()))
    throw make_error(ErrorCode::kBadFile, "the file holds no ONNX graph").hint(kDamaged);
  if (opsets.empty()) throw make_error(ErrorCode::kBadFile, "the model imports no opset").hint(kDamaged);
  const auto main = opsets.find("");
  if (main == opsets.end()) return;  // other domains only
  if (main->second < kOldestOpset || main->second > kNewestOpset)
    throw make_error(ErrorCode::kUnsupported, "opset {} of ai.onnx is not read; {} to {} are", main->second,
                     kOldestOpset, kNewestOpset)
        .hint("convert the model with onnx.version_converter, or export it with another opset");
}

// Declared shapes of values between the nodes are only a help, and often stale after a tool changed the
// model: when they contradict the operators, the operators win.
void forget_declared(Graph& graph) {
  for (const NodeId id : graph.nodes()) {
    for (const ValueId out : graph.node(id).out) {
      if (out == ValueId::kNone || !graph.node(id).domain.empty()) continue;
      graph.value(out).dtype = DType::kUndefined;
      graph.value(out).shape = Shape();
    }
    for (const auto& [key, attribute] : graph.node(id).attrs)
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) forget_declared(**body);
  }
}

void infer(Graph& graph) {
  try {
    infer_shapes(graph);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFile) throw;
    forget_declared(graph);
    infer_shapes(graph);
  }
}

void warn(const onnx::ModelProto& model, const ReadOptions& options) {
  if (options.warnings == nullptr) return;
  if (model.training_info_size() > 0)
    options.warnings->push_back(
        "training information (training_info) is left out: pare reads the inference graph");
  if (model.ir_version() > kNewestIr)
    options.warnings->push_back(fmt::format("IR version {} is newer than {}; what is new in it is left out",
                                            model.ir_version(), kNewestIr));
}

Graph read_model(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                 const std::string& directory, const std::string& name, const ReadOptions& options) {
  if (bytes.empty()) throw make_error(ErrorCode::kBadFile, "the file is empty").hint(kDamaged);
  ModelScope scope;
  onnx::ModelProto model;
  {
    StrippedModel stripped = strip_payloads(bytes);
    parse(stripped.message, model);
    scope.tensors.payloads = std::move(stripped.payloads);
  }
  scope.file = name;
  scope.tensors.owner = std::move(owner);
  scope.tensors.directory = directory;
  scope.opsets = read_opsets(model);
  check_header(model, scope.opsets);
  scope.opset = scope.opsets.emplace("", kNewestOpset).first->second;
  // Forms of other domains are raised by what their constants hold.
  scope.tensors.unread = options.unread && scope.opsets.size() == 1;
  warn(model, options);
  inline_functions(model, scope.opset, directory);
  sort_nodes(*model.mutable_graph());

  Graph graph;
  GraphImporter(scope, nullptr, 0).run(model.graph(), graph);
  check_nodes(model, scope.opsets, name);
  std::map<std::string, std::string> sha256;
  for (const auto& entry : model.metadata_props()) {
    if (entry.key().rfind(kOpsetKey, 0) == 0) continue;
    const bool checksum = entry.key().rfind(kSha256Key, 0) == 0;  // of this file's data, no other's
    (checksum ? sha256[entry.key().substr(std::strlen(kSha256Key))] : graph.metadata[entry.key()]) =
        entry.value();
  }
  if (options.verify_data) verify_external(scope.tensors, sha256);
  if (!options.infer) return graph;
  infer(graph);
  for (const auto& raiser : scope.raisers) raiser->finish();
  graph.drop_unused_values();
  verify(graph);
  attach_fallbacks(graph);
  return graph;
}

}  // namespace

Graph read_onnx_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                      const std::string& directory, const std::string& name, const ReadOptions& options) {
  try {
    return with_hints(kHints, [&] { return read_model(bytes, std::move(owner), directory, name, options); });
  } catch (Error& error) {
    error.at(name);
    error.add_context("reading ONNX model '" + name + "'");
    throw;
  }
}

Graph read_onnx(const std::string& path, const ReadOptions& options) {
  const MappedFile file(path);
  return read_onnx_bytes(file.bytes(), file.owner(), parent_path(path), path, options);
}

OnnxHeader read_onnx_header(const std::string& path) {
  const MappedFile file(path);
  onnx::ModelProto model;
  with_hints(kHints, [&] { parse(strip_payloads(file.bytes()).message, model); });
  OnnxHeader header;
  header.ir_version = model.ir_version();
  header.producer = model.producer_name();
  if (!model.producer_version().empty()) header.producer += " " + model.producer_version();
  for (const auto& [domain, version] : read_opsets(model))
    header.opsets[domain.empty() ? "ai.onnx" : domain] = version;
  return header;
}

}  // namespace pare
