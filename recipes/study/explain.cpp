#include "recipes/study/explain.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/ir/subgraph.h"
#include "eval/report_render.h"

namespace pare {
namespace {

struct Place {
  SubgraphPath path;
  const Graph* scope = nullptr;
  NodeId node = NodeId::kNone;
};

bool is_helper(const Node& node) { return node.is("QuantizeLinear") || node.is("DequantizeLinear"); }

std::string without(std::string text, const std::string& suffix) {
  if (text.size() > suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0)
    text.resize(text.size() - suffix.size());
  return text;
}

std::string label_in(const Graph& whole, const SubgraphPath& path, const std::string& name) {
  return path.empty() ? name : to_string(whole, path) + "/" + name;
}

// What the source model called a value: outputs of a quantized operator get a name of their own.
std::string source_name(const std::string& name) { return without(name, "_QuantizeLinear_Input"); }

Place find_layer(const Graph& graph, const std::string& layer) {
  Place found;
  std::vector<std::string> names;
  walk_graphs(graph, [&](const SubgraphPath& path, const Graph& scope) {
    for (const NodeId id : scope.nodes()) {
      const Node& node = scope.node(id);
      if (is_helper(node)) continue;
      std::vector<std::string> mine = {node.name};
      for (const ValueId out : node.out)
        if (out != ValueId::kNone) mine.push_back(source_name(scope.value(out).name));
      for (const std::string& name : mine) {
        if (name.empty()) continue;
        const std::string label = label_in(graph, path, name);
        if (found.node == NodeId::kNone && label == layer) found = {path, &scope, id};
        names.push_back(label);
      }
    }
  });
  if (found.node != NodeId::kNone) return found;
  std::vector<const char*> known;
  for (const std::string& name : names) known.push_back(name.c_str());
  const std::string near = nearest_word(layer, known.data(), known.size());
  throw make_error(ErrorCode::kUsage, "the model has no layer '{}'", layer)
      .hint(near.empty() ? "`pare inspect MODEL --layers` lists them"
                         : fmt::format("did you mean '{}'?", near));
}

// The tensor of the source model behind an input of a written node, and whether it has codes.
std::string tensor_behind(const Graph& scope, ValueId input, bool& has_codes) {
  const NodeId producer = scope.producer(input);
  has_codes = producer != NodeId::kNone && scope.node(producer).is("DequantizeLinear");
  if (!has_codes) return source_name(scope.value(input).name);
  const Node& dq = scope.node(producer);
  const std::string name = scope.value(input).name, base = without(name, "_DequantizeLinear_Output");
  if (base != name) return base;
  // An output of the model keeps its name on the DequantizeLinear; anything else is named by what is behind
  // it.
  const NodeId q = scope.producer(dq.in[0]);
  return q == NodeId::kNone ? without(scope.value(dq.in[0]).name, "_quantized")
                            : source_name(scope.value(scope.node(q).in[0]).name);
}

template <typename Row>
const Row* row_of(const std::vector<Row>& rows, const std::string& tensor) {
  const auto it =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.tensor == tensor; });
  return it == rows.end() ? nullptr : &*it;
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

void describe(const ExplainedInput& in, std::vector<std::string>& out) {
  if (!in.quantized) {
    out.push_back(fmt::format("input {} '{}' is float{}", in.slot, in.tensor,
                              in.why_float.empty() ? "" : ": " + in.why_float));
    return;
  }
  const ReportQuantized& q = *in.quantized;
  std::string text = fmt::format("input {} '{}' is {} in {}, {} scale{} (per {})", in.slot, in.tensor,
                                 q.kind.empty() ? "tensor" : q.kind, q.format, q.scales,
                                 q.scales == 1 ? "" : "s", q.granularity);
  if (!q.rule.empty()) text += fmt::format("; placed as {}", q.rule);
  out.push_back(text);
  if (q.kind == "activation" && !q.method.empty()) {
    text = fmt::format("  codes cover [{}, {}], chosen by {}", number(q.low), number(q.high), q.method);
    if (in.seen)
      text += fmt::format("; calibration saw [{}, {}] in {} values", number(in.seen->least),
                          number(in.seen->largest), in.seen->total);
    if (q.clipped_share)
      text += fmt::format("; {:.3g} of the evaluation values lie outside", *q.clipped_share);
    out.push_back(text);
  }
  if (q.sqnr_db)
    out.push_back(fmt::format("  the dequantized weight has {:.1f} dB; {} elements beyond the largest code",
                              *q.sqnr_db, q.clipped));
}

}  // namespace

Explanation explain_layer(const Report& report, const Graph& written, const std::string& layer) {
  const Place place = find_layer(written, layer);
  const Graph& scope = *place.scope;
  const Node& node = scope.node(place.node);
  Explanation e;
  e.op = node.op;
  e.output = label_in(written, place.path, source_name(scope.value(node.out[0]).name));
  e.layer = node.name.empty() ? e.output : label_in(written, place.path, node.name);
  const auto about = [&](const std::string& name) { return name == e.layer || name == e.output; };
  for (const ReportSkipped& row : report.skipped)
    if (about(row.tensor)) e.skipped.push_back(row);
  const std::size_t declared =
      node.declared_inputs >= 0 ? static_cast<std::size_t>(node.declared_inputs) : node.in.size();
  for (std::size_t slot = 0; slot < std::min(declared, node.in.size()); ++slot) {
    if (node.in[slot] == ValueId::kNone) continue;
    ExplainedInput in;
    in.slot = static_cast<int>(slot);
    bool has_codes = false;
    in.tensor = label_in(written, place.path, tensor_behind(scope, node.in[slot], has_codes));
    const ReportQuantized* row = has_codes ? row_of(report.quantized, in.tensor) : nullptr;
    if (row != nullptr) in.quantized = *row;
    if (row != nullptr && row->kind == "activation")
      if (const ReportHistogram* seen = row_of(report.histograms, in.tensor)) in.seen = *seen;
    const ReportSkipped* skipped = row_of(report.skipped, in.tensor);
    if (skipped != nullptr && !about(in.tensor)) e.skipped.push_back(*skipped);
    if (!in.quantized) {
      if (has_codes)
        in.why_float = "not by this run: its codes are the model's own, or those of a bias";
      else if (!e.skipped.empty())
        in.why_float = e.skipped.front().why;
    }
    e.inputs.push_back(std::move(in));
  }
  for (const ReportRealized& row : report.realized)
    if (about(row.node)) e.realized.push_back(row);
  for (const ReportLayer& row : report.layers)
    if (about(row.name)) e.measured = row;

  e.sentences.push_back(fmt::format("{} '{}', which computes '{}'", e.op, e.layer, e.output));
  for (const ExplainedInput& in : e.inputs) describe(in, e.sentences);
  for (const ReportSkipped& row : e.skipped)
    e.sentences.push_back(fmt::format("left alone: '{}': {}", row.tensor, row.why));
  for (const ReportRealized& row : e.realized)
    e.sentences.push_back(row.why.empty() ? fmt::format("runs here as {}", row.realized)
                                          : fmt::format("runs here as {}: {}", row.realized, row.why));
  if (e.measured)
    e.sentences.push_back(
        fmt::format("its output against float: {:.1f} dB, cosine {:.6f}, largest difference {}",
                    e.measured->sqnr_db, e.measured->cosine, number(e.measured->max_abs)));
  for (const ReportTable& table : report.tables)
    if (table.title == "Candidates" && table.chosen >= 0 && !e.inputs.empty())
      e.sentences.push_back(fmt::format("for the whole model '{}' was chosen among {} candidates, by {}",
                                        table.rows[static_cast<std::size_t>(table.chosen)][0],
                                        table.rows.size(),
                                        table.columns.size() > 1 ? table.columns[1] : "score"));
  return e;
}

}  // namespace pare
