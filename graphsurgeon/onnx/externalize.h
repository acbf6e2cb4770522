// `pare surgeon externalize`: moves the payloads of an ONNX file into files beside it, or back into it.
//
// The file is edited, not converted: nodes, opset, IR version, functions, custom operators and metadata stay
// as they are, also where pare could not run the model. Initializers and Constant nodes, those of subgraphs
// included, go out (external_store.h says how); other attributes and functions keep their payloads inside.
// Payloads that lay outside already are read, checked against their checksums, and stored anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsurgeon/onnx/external_data_options.h"

namespace pare {

struct ExternalizeReport {
  std::int64_t tensors = 0;      // stored outside
  std::int64_t model_bytes = 0;  // of the .onnx file
  std::int64_t external_bytes = 0;
  std::vector<std::string> files;  // of weights, beside the model
};

// options.files kNone: everything goes into the model file. `from` and `to` may be the same file; files of
// weights that `from` had under other names stay.
// Errors as read_onnx for the file itself (nodes are not looked at); kUnsupported when more than 2 GB would
// stand in the model; kUsage and kDevice as write_onnx.
ExternalizeReport externalize_onnx(const std::string& from, const std::string& to,
                                   const ExternalOptions& options);

}  // namespace pare
