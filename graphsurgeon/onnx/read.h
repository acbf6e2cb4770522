// ONNX files into graphs.
//
// Every node comes in its newest form (raise.h), whatever opset the file has (ai.onnx 1 to 27). Constant
// nodes and initializers become constants: views into the mapped file where alignment allows; sparse ones are
// filled up. Nodes of domains that pare does not know are kept as they are, and cannot be run. Initializers
// that are also inputs are constants, not inputs. Model-local functions, and operators that pare does not
// know but ONNX defines by a function body, are inlined; nodes whose types no kernel takes get their
// operator's body as Node::fallback. Value::origin is the name in the file; names, symbolic sizes, opset and
// metadata_props are kept. Shapes are inferred and the graph is verified.
//
// Errors, with file and node or tensor in `where`:
//   kBadFile      missing, empty, cut short, not ONNX, invalid by the rules of onnx.checker or verify(),
//                 external data that is missing, has another checksum or leads out of the model's folder
//   kUnsupported  an unknown operator of ai.onnx, an opset outside 1..27, maps, sparse tensors that are huge
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct ReadOptions {
  bool infer = true;  // false: shapes as declared only, not verified; for looking into a file
  std::vector<std::string>* warnings = nullptr;  // what was left out or looks odd, in words
  // For looking at structure: values of constants of 64 KiB and more must not be read then, since floats
  // among them may not be aligned (three of four in a file are not, and are copied otherwise).
  bool unread = false;
  bool verify_data = false;  // read all external data now and compare with the checksums that the model has
};

Graph read_onnx(const std::string& path, const ReadOptions& options = {});

// `bytes` must outlive the graph, or `owner` keeps them alive; without an owner constants are copies.
// `directory` holds external data ("": there is none); `name` stands for the file in errors.
Graph read_onnx_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                      const std::string& directory, const std::string& name = "model",
                      const ReadOptions& options = {});

}  // namespace pare
