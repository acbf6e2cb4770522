#include "cli/output.h"

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"

namespace pare {

void check_output(const std::string& output, const std::vector<std::string>& inputs) {
  const std::string folder = parent_path(output);
  if (!is_directory(folder))
    throw make_error(ErrorCode::kDevice, "there is no folder '{}' to write into", folder)
        .at(output)
        .hint("make it first, or check the path");
  if (!path_exists(output)) return;
  for (const std::string& input : inputs)
    if (!input.empty() && path_exists(input) && canonical_path(input) == canonical_path(output))
      throw make_error(ErrorCode::kUsage, "the output would take the place of what is read")
          .at(output)
          .hint("give another name to -o");
}

void write_model(Context& context, const Graph& graph, const std::string& output,
                 const WriteOptions& options) {
  const WriteReport written = write_onnx(graph, output, options);
  for (const std::string& why : written.why) context.warn(why);
  Json& json = context.document();
  json["output"] = output;
  json["opset"] = written.opset;
  json["bytes"] = written.bytes;
  context.print(fmt::format("wrote {} (opset {}, {} bytes)", output, written.opset, written.bytes));
}

}  // namespace pare
