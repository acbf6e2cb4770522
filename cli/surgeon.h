// What the verbs of `pare surgeon` that change a model share: MODEL, -o, --opset, --dry-run, and the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "engine/ir/graph.h"

namespace pare {

class SurgeonVerb : public Command {
 public:
  void declare(Args& args) final;

 protected:
  virtual void declare_verb(Args& args) = 0;

  // The model, after a look at where the result will go. Error kUsage without -o and without --dry-run.
  Graph open(const std::vector<std::string>& others_read = {});
  // Writes the graph where -o says (not with --dry-run); opset, output and warnings into the document.
  // `opset`: at least this one.
  void finish(Context& context, const Graph& graph, int opset = 0);
  // The line and the keys about nodes.
  void say_nodes(Context& context, std::int64_t before, std::int64_t after) const;

  const std::string& path() const { return path_; }
  const std::string& output() const { return output_; }
  bool dry_run() const { return dry_run_; }

 private:
  std::string path_, output_;
  std::int64_t opset_ = 0;
  bool dry_run_ = false;
};

}  // namespace pare
