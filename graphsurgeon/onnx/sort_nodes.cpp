#include "graphsurgeon/onnx/sort_nodes.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/error.h"

namespace pare {
namespace {

using Visit = std::function<void(const std::string&)>;

// Every name that the node or its subgraphs read; names made inside are among them, and harmless: a subgraph
// may not make a name that is visible outside.
void for_each_read(const onnx::NodeProto& node, const Visit& visit) {
  for (const std::string& name : node.input())
    if (!name.empty()) visit(name);
  for (const auto& attribute : node.attribute()) {
    const auto inside = [&](const onnx::GraphProto& graph) {
      for (const auto& inner : graph.node()) for_each_read(inner, visit);
      for (const auto& output : graph.output()) visit(output.name());
    };
    if (attribute.has_g()) inside(attribute.g());
    for (const auto& graph : attribute.graphs()) inside(graph);
  }
}

std::string word(const onnx::NodeProto& node) {
  return fmt::format("'{}' ({})",
                     node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name(),
                     node.op_type());
}

class Sorter {
 public:
  explicit Sorter(onnx::GraphProto& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i)
      for (const std::string& output : graph.node(i).output())
        if (!output.empty()) maker_.emplace(output, i);
    // Given twice: an error that the importer words.
    for (const auto& tensor : graph.initializer()) maker_.erase(tensor.name());
    for (const auto& input : graph.input()) maker_.erase(input.name());
  }

  void run() {
    if (in_order()) return;
    const int count = graph_.node_size();
    std::vector<std::vector<int>> readers(static_cast<std::size_t>(count));
    std::vector<int> waiting(static_cast<std::size_t>(count), 0);
    for (int i = 0; i < count; ++i)
      for (const int before : makers_of(i)) {
        readers[static_cast<std::size_t>(before)].push_back(i);
        ++waiting[static_cast<std::size_t>(i)];
      }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < count; ++i)
      if (waiting[static_cast<std::size_t>(i)] == 0) ready.push(i);
    std::vector<int> order;
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      order.push_back(node);
      for (const int reader : readers[static_cast<std::size_t>(node)])
        if (--waiting[static_cast<std::size_t>(reader)] == 0) ready.push(reader);
    }
    if (static_cast<int>(order.size()) < count) fail_cycle(waiting);
    reorder(order);
  }

 private:
  bool in_order() const {
    for (int i = 0; i < graph_.node_size(); ++i) {
      bool good = true;
      for_each_read(graph_.node(i), [&](const std::string& name) {
        const auto maker = maker_.find(name);
        good = good && (maker == maker_.end() || maker->second < i);
      });
      if (!good) return false;
    }
    return true;
  }

  std::vector<int> makers_of(int node) const {
    std::vector<int> makers;
    for_each_read(graph_.node(node), [&](const std::string& name) {
      const auto maker = maker_.find(name);
      if (maker != maker_.end()) makers.push_back(maker->second);
    });
    std::sort(makers.begin(), makers.end());
    makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
    return makers;
  }

  // Every node that still waits has a maker that waits: going back from one leads into a cycle.
  [[noreturn]] void fail_cycle(const std::vector<int>& waiting) const {
    int at = 0;
    while (waiting[static_cast<std::size_t>(at)] == 0) ++at;
    std::vector<int> path;
    std::unordered_map<int, std::size_t> seen;
    while (seen.emplace(at, path.size()).second) {
      path.push_back(at);
      for (const int maker : makers_of(at))
        if (waiting[static_cast<std::size_t>(maker)] != 0) {
          at = maker;
          break;
        }
    }
    std::string text;
    constexpr std::size_t kShown = 5;
    const std::size_t first = seen[at];
    for (std::size_t i = path.size(); i-- > first && path.size() - i <= kShown;)
      text += word(graph_.node(path[i])) + " -> ";
    if (path.size() - first > kShown) text += "... -> ";
    throw make_error(ErrorCode::kBadFile, "nodes form a cycle: {}{}", text, word(graph_.node(path.back())))
        .hint("a model is a graph without cycles: the file was edited badly, export it again");
  }

  void reorder(const std::vector<int>& order) {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> sorted;
    sorted.Reserve(graph_.node_size());
    for (const int node : order) *sorted.Add() = std::move(*graph_.mutable_node(node));
    graph_.mutable_node()->Swap(&sorted);
  }

  onnx::GraphProto& graph_;
  std::unordered_map<std::string, int> maker_;
};

}  // namespace

void sort_nodes(onnx::GraphProto& graph) {
  for (auto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) sort_nodes(*attribute.mutable_g());
      for (auto& inner : *attribute.mutable_graphs()) sort_nodes(inner);
    }
  Sorter(graph).run();
}

}  // namespace pare
