#include "cli/surgeon.h"

#include <algorithm>

#include "cli/output.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/load.h"

namespace pare {

void SurgeonVerb::declare(Args& args) {
  args.positional("MODEL", path_, "ONNX file")
      .option("-o,--output", "OUT", output_, "where to write the result; left out with --dry-run");
  declare_verb(args);
  args.option("--opset", "N", opset_, "ONNX opset of the result (default: the input's)", "export.opset")
      .flag("--dry-run", dry_run_, "only say what would change");
}

Graph SurgeonVerb::open(const std::vector<std::string>& others_read) {
  if (output_.empty() && !dry_run_)
    throw make_error(ErrorCode::kUsage, "no place for the result")
        .at("-o")
        .hint("name a file with -o, or ask with --dry-run what would change");
  if (!output_.empty() && !dry_run_) {
    std::vector<std::string> read = others_read;
    read.push_back(path_);
    check_output(output_, read);
  }
  return load_model(path_);
}

void SurgeonVerb::finish(Context& context, const Graph& graph, int opset) {
  Json& json = context.document();
  json["dry_run"] = dry_run_;
  if (dry_run_) return;
  WriteOptions write;
  write.opset = static_cast<int>(opset_);
  if (write.opset == 0 && opset > graph.opset) write.opset = opset;
  write_model(context, graph, output_, write);
}

void SurgeonVerb::say_nodes(Context& context, std::int64_t before, std::int64_t after) const {
  Json& json = context.document();
  json["nodes_before"] = before;
  json["nodes_after"] = after;
  context.print(fmt::format("{}: {} nodes became {}", path_, before, after));
}

}  // namespace pare
