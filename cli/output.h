// Files that commands write.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "graphsurgeon/onnx/write.h"

namespace pare {

// Looks at an output before hours of work and not after them. Errors: kUsage when it is one of the files that
// are read (a quantized model would take the place of the float one, which cannot be had back); kDevice when
// its folder is not there.
void check_output(const std::string& output, const std::vector<std::string>& inputs);

// Writes the model and says so: a line, `output`, `opset` and `bytes` in the document, a warning for each
// thing that is not as asked for.
void write_model(Context& context, const Graph& graph, const std::string& output,
                 const WriteOptions& options = {});

}  // namespace pare
