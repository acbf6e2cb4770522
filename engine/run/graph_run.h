// Runs one graph: the main one of a session, or a subgraph each time its node wants it. Plans of its nodes
// last from run to run; buffers come from the pool that all graphs of a session share. Internal to
// engine/run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/subgraph.h"
#include "engine/run/node_plan.h"
#include "engine/run/run_context.h"
#include "engine/run/slot.h"

namespace pare {

class GraphRun {
 public:
  GraphRun(const Graph& graph, RunContext& context);
  ~GraphRun();
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;

  const Graph& graph() const { return graph_; }

  // A graph input or a captured value for the next run; takes over the slot's reference.
  void set(ValueId id, Slot slot);
  void run();
  // A graph output after run(), with a reference of its own.
  Slot output(std::size_t i);
  // Gives back what the run still holds. After an exception forget() instead, when the pool is empty.
  void clear();
  void forget();

  void watch(ValueId id, Session::Watcher watcher) { watchers_[id] = std::move(watcher); }
  void clear_watchers();  // inner graphs included
  GraphRun& inner(const SubgraphStep& step);

  void profile(const SubgraphPath& path, std::vector<Session::Profile>& rows) const;
  std::string kernel_of(NodeId id) const;

 private:
  struct Step;
  friend class StepOutputs;

  void run_step(Step& step);
  void run_kernel(Step& step);
  void run_fallback(Step& step);
  void place_outputs(Step& step, Variant& variant);
  int reusable_input(const Step& step, const Variant& variant, std::int64_t bytes) const;
  void tell(ValueId id);
  Slot& slot(ValueId id) { return slots_[static_cast<std::size_t>(id)]; }

  const Graph& graph_;
  RunContext& context_;
  std::vector<Step> steps_;
  std::vector<Slot> slots_;       // by ValueId
  std::vector<ValueId> lasting_;  // hold a reference to the end of a run: outputs, and inputs nobody reads
  std::map<ValueId, Session::Watcher> watchers_;
};

}  // namespace pare
