// Rules that write several nodes, or a subgraph, in place of one.
#include "graphsurgeon/onnx/raise/raise_rules.h"

namespace pare {

std::string raised_name(const Node& node) { return node.name.empty() ? node.op : node.name; }

ValueId emit_step(Raiser& r, const Node& node, const char* what, const char* op, std::vector<ValueId> in,
                  Attributes attrs) {
  Node step;
  step.name = raised_name(node) + "_" + what;
  step.op = op;
  step.in = std::move(in);
  step.out = {r.temporary(node, what)};
  step.attrs = std::move(attrs);
  const ValueId out = step.out[0];
  r.emit(std::move(step));
  return out;
}

// One scale and one bias a group become one a channel: [G] -> [G, 1] -> [G, C / G] -> [C].
bool raise_group_normalization(Raiser& r, Node& node) {
  const std::int64_t groups = node.attr("num_groups", std::int64_t{0});
  if (groups < 1) fail(ErrorCode::kBadFile, "attribute num_groups is {}", groups);
  const ValueId channels = emit_step(r, node, "channels", "Shape", {node.in.at(0)},
                                     {{"start", std::int64_t{1}}, {"end", std::int64_t{2}}});
  const ValueId count = r.ints(node, "groups", {groups});
  const ValueId each = emit_step(r, node, "each", "Div", {channels, count});
  const ValueId shape = emit_step(r, node, "grid", "Concat", {count, each}, {{"axis", std::int64_t{0}}});
  const ValueId column = r.ints(node, "column", {groups, 1}), flat = r.ints(node, "flat", {-1});
  for (const std::size_t slot : {std::size_t{1}, std::size_t{2}}) {
    const bool scale = slot == 1;
    const ValueId tall =
        emit_step(r, node, scale ? "scale_column" : "bias_column", "Reshape", {node.in.at(slot), column});
    const ValueId wide = emit_step(r, node, scale ? "scale_grid" : "bias_grid", "Expand", {tall, shape});
    node.in[slot] = emit_step(r, node, scale ? "scale_channels" : "bias_channels", "Reshape", {wide, flat});
  }
  return true;
}

// Opsets 7 to 13. spatial = 0 has statistics for every place of a sample: plain arithmetic. Statistics as
// outputs mean training, unless nobody reads them (Raiser::finish).
bool raise_batch_normalization(Raiser& r, Node& node) {
  std::int64_t spatial = 1;
  take(node, "spatial", spatial);
  const bool training = node.out.size() > 1;
  if (spatial != 1) {
    if (training) fail(ErrorCode::kUnsupported, "BatchNormalization with spatial = 0 in training");
    const float epsilon = node.attr("epsilon", 1e-5F);
    const ValueId small =
        r.constant(node, "epsilon", typed_number(r.dtype(node.in.at(4)), epsilon, "epsilon"));
    const ValueId variance = emit_step(r, node, "variance", "Add", {node.in.at(4), small});
    const ValueId deviation = emit_step(r, node, "deviation", "Sqrt", {variance});
    const ValueId centred = emit_step(r, node, "centred", "Sub", {node.in.at(0), node.in.at(3)});
    const ValueId normal = emit_step(r, node, "normal", "Div", {centred, deviation});
    const ValueId scaled = emit_step(r, node, "scaled", "Mul", {normal, node.in.at(1)});
    Node add;
    add.name = raised_name(node);
    add.op = "Add";
    add.in = {scaled, node.in.at(2)};
    add.out = {node.out.at(0)};
    r.emit(std::move(add));
    return false;
  }
  if (!training) return true;
  node.out.resize(std::min<std::size_t>(node.out.size(), 3));  // saved_mean and saved_var are never computed
  node.attrs["training_mode"] = std::int64_t{1};
  r.add_statistics(r.emit(std::move(node)));
  return false;
}

// Scan of opset 8 runs the body for each sample of a batch: Scan over the batch, whose body is the newer
// Scan. Inputs: sequence_lens (optional), N states, scanned values; all have the batch in front, then the
// sequence.
bool raise_scan_8(Raiser& r, Node& node) {
  const std::int64_t scanned = node.attr("num_scan_inputs", std::int64_t{0});
  const auto declared = static_cast<std::int64_t>(
      node.declared_inputs < 0 ? node.in.size() : static_cast<std::size_t>(node.declared_inputs));
  if (!node.in.empty() && node.in[0] != ValueId::kNone)
    fail(ErrorCode::kUnsupported, "Scan of opset 8 with sequence lengths");
  const std::int64_t states = declared - 1 - scanned;
  const auto body = node.attrs.find("body");
  if (scanned < 1 || states < 0 || body == node.attrs.end() ||
      !std::holds_alternative<std::shared_ptr<Graph>>(body->second))
    fail(ErrorCode::kBadFile, "Scan with {} inputs, {} of them scanned", declared, scanned);
  const auto inner_body = std::get<std::shared_ptr<Graph>>(body->second);

  auto outer = std::make_shared<Graph>();
  outer->name = raised_name(node) + "_sample";
  outer->opset = r.opset();
  Node scan;  // over the sequence of one sample
  scan.name = raised_name(node);
  scan.op = "Scan";
  scan.attrs["num_scan_inputs"] = scanned;
  std::vector<std::int64_t> directions;
  if (take(node, "directions", directions)) scan.attrs["scan_input_directions"] = directions;
  const auto add = [&](const std::string& name) {
    Value value;
    value.name = name;
    return outer->add_value(std::move(value));
  };
  for (std::int64_t i = 0; i < states + scanned; ++i) {
    scan.in.push_back(add(fmt::format("in_{}", i)));
    outer->inputs.push_back(scan.in.back());
  }
  const auto shifted =
      std::make_shared<Graph>(*inner_body);  // its captures lie one place further to the left
  shifted->captures.clear();
  std::map<int, int> place;  // of a capture among the inputs of `scan`, by its place among those of `node`
  for (Capture capture : inner_body->captures) {
    if (place.count(capture.input) == 0) {
      place[capture.input] = static_cast<int>(scan.in.size());
      scan.in.push_back(add(fmt::format("captured_{}", capture.input)));
      outer->captures.push_back({capture.input - 1, scan.in.back()});
    }
    capture.input = place[capture.input];
    shifted->captures.push_back(capture);
  }
  if (!place.empty()) scan.declared_inputs = static_cast<int>(states + scanned);
  scan.attrs["body"] = shifted;
  for (std::size_t i = 0; i < inner_body->outputs.size(); ++i) {
    scan.out.push_back(add(fmt::format("out_{}", i)));
    outer->outputs.push_back(scan.out.back());
  }
  outer->add_node(std::move(scan));

  node.in.erase(node.in.begin());
  if (node.declared_inputs >= 0) --node.declared_inputs;
  node.attrs["num_scan_inputs"] = states + scanned;
  node.attrs["body"] = outer;
  return true;
}

}  // namespace pare
