#include "graphsurgeon/onnx/write.h"

#include <algorithm>
#include <map>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/onnx/check.h"
#include "graphsurgeon/onnx/export_graph.h"
#include "graphsurgeon/onnx/external_store.h"
#include "graphsurgeon/onnx/header.h"
#include "graphsurgeon/onnx/lower.h"
#include "graphsurgeon/onnx/raise/raise.h"

namespace pare {
namespace {

constexpr int kDefaultOpset = 21;

std::int64_t constant_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.is_constant()) bytes += value.constant.bytes();
  }
  for (const NodeId id : graph.nodes())
    for (const auto& [key, attribute] : graph.node(id).attrs)
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) bytes += constant_bytes(**body);
  return bytes;
}

// Raises until every node fits. Each round can only go up, so there are few.
int settle_opset(const Graph& graph, int asked, std::vector<std::string>& reasons) {
  int opset = asked;
  for (bool again = true; again;) {
    again = false;
    for (const NodeId id : graph.nodes()) {
      std::string why;
      const int needed = needed_opset(graph, graph.node(id), opset, why);
      if (needed == opset) continue;
      reasons.push_back(fmt::format("written with opset {} instead of {}: {}", needed, opset, why));
      opset = needed;
      again = true;
    }
  }
  return opset;
}

// The newest of ai.onnx.ml that holds the model: version 5 has TreeEnsemble, and no longer the two before it.
int ml_version(const onnx::GraphProto& graph) {
  int version = 4;
  for (const auto& node : graph.node()) {
    if (node.domain() == "ai.onnx.ml" && node.op_type() == "TreeEnsemble") return 5;
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) version = std::max(version, ml_version(attribute.g()));
  }
  return version;
}

void write_imports(const std::set<std::string>& domains, const Graph& graph, int opset,
                   onnx::ModelProto& model) {
  auto* main = model.add_opset_import();
  main->set_domain("");
  main->set_version(opset);
  for (const std::string& domain : domains) {
    if (domain.empty()) continue;
    auto* import = model.add_opset_import();
    import->set_domain(domain);
    const auto known = graph.metadata.find(kOpsetKey + domain);
    if (domain == "ai.onnx.ml")
      import->set_version(ml_version(model.graph()));
    else
      import->set_version(known == graph.metadata.end() ? 1 : std::stoll(known->second));
  }
}

void write_metadata(const Graph& graph, onnx::ModelProto& model) {
  std::map<std::string, std::string> entries = graph.metadata;
  entries["pare.version"] = PARE_VERSION;
  for (const auto& [key, value] : entries) {
    if (key.rfind(kOpsetKey, 0) == 0) continue;
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
}

std::string build(const Graph& graph, const WriteOptions& options, ExternalStore* store, WriteReport& r) {
  const int own = graph.opset != 0 ? std::max(graph.opset, kOldestWritten) : kDefaultOpset;
  r.asked = options.opset != 0 ? options.opset : own;
  if (r.asked < kOldestWritten || r.asked > kNewestOpset)
    throw make_error(ErrorCode::kUsage, "opset {} cannot be written; {} to {} can", r.asked, kOldestWritten,
                     kNewestOpset)
        .hint("leave --opset out to keep the model's own");
  r.opset = settle_opset(graph, r.asked, r.why);

  onnx::ModelProto model;
  GraphExporter exporter(graph, r.opset, nullptr, store);
  exporter.run(*model.mutable_graph(), nullptr);
  r.ir_version = ir_version_of_opset(r.opset);
  for (const DType type : exporter.dtypes())
    if (const FormatInfo* format = find_format(type)) r.ir_version = std::max(r.ir_version, format->min_ir);
  model.set_ir_version(r.ir_version);
  model.set_producer_name("pare");
  model.set_producer_version(PARE_VERSION);
  write_imports(exporter.domains(), graph, r.opset, model);
  write_metadata(graph, model);
  check_written(model, "model");
  if (store != nullptr) store->write(model);

  std::string bytes;
  if (!model.SerializeToString(&bytes)) fail(ErrorCode::kInternal, "the model could not be serialized");
  r.bytes = bytes.size();
  return bytes;
}

}  // namespace

std::string onnx_bytes(const Graph& graph, const WriteOptions& options, WriteReport* report) {
  WriteReport local;
  WriteReport& r = report != nullptr ? *report : local;
  r = WriteReport{};
  const std::int64_t constants = constant_bytes(graph);
  if (constants > options.inline_limit)
    throw make_error(ErrorCode::kUnsupported, "the model has {} bytes of constants; an ONNX file holds 2 GB",
                     constants)
        .hint("write it to a file: the weights then go into a file beside it");
  return build(graph, options, nullptr, r);
}

WriteReport write_onnx(const Graph& graph, const std::string& path, const WriteOptions& options) {
  WriteReport report;
  with_context("writing ONNX model '" + path + "'", [&] {
    ExternalOptions external = options.external;
    const std::int64_t constants = constant_bytes(graph);
    const bool too_large = external.files == ExternalFiles::kNone && constants > options.inline_limit;
    if (too_large) external.files = ExternalFiles::kOne;
    ExternalStore store(path, external);
    const std::string bytes = build(graph, options, &store, report);
    report.external = store.locations();
    report.external_bytes = store.bytes();
    if (too_large)
      report.why.push_back(fmt::format(
          "the weights are written beside the model, to '{}': {} bytes of constants are more than the {} "
          "that an ONNX file holds",
          external.location.empty() ? file_name(path) + ".data" : external.location, constants,
          options.inline_limit));
    AtomicFile file(path);
    file.write(bytes);
    store.commit(file);
  });
  return report;
}

}  // namespace pare
