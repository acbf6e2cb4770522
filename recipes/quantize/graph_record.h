// Graphs as JSON with their tensors beside it, for files that one version of pare writes and reads: nothing
// is lowered, renamed or left out, so what comes back is the graph that was given, with the same ids.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/json_fwd.h"
#include "engine/base/mapped_file.h"
#include "engine/ir/graph.h"

namespace pare {

// Tensors in the order in which they are written; one that is given twice is written once.
class TensorList {
 public:
  std::int64_t add(const Tensor& tensor);  // its number; -1 for none
  const std::vector<Tensor>& tensors() const { return tensors_; }
  Tensor at(std::int64_t number) const;  // -1: none. Error kBadFile for others that are not there

  // Before add() sees the tensor: its numbers are not written. One of a `name` is asked of the reader's
  // `elsewhere`; one without a name comes back absent (engine/base/absent_tensor.h).
  void leave_out(const Tensor& tensor, const std::string& name = "");

  // FILE: a line of JSON {.., "tensors": [{dtype, dims, offset}], "bytes", "sha256"} with `head` in it, then
  // the tensors at multiples of 64 bytes. Whole or not at all. What is left out has {elsewhere: name} for
  // an offset.
  void write(const std::string& path, const Json& head) const;
  // Tensors are views of the mapped file. Error kBadFile for anything that is not as written.
  using Elsewhere = std::function<Tensor(const std::string& name)>;
  static TensorList read(const std::string& path, Json& head, const Elsewhere& elsewhere = nullptr);

 private:
  std::vector<Tensor> tensors_;
  std::map<std::int64_t, std::string> left_out_;  // by number
  std::map<std::pair<const void*, std::string>, std::int64_t> known_;
};

// Ids are those of a graph without removed nodes and values (GraphCopy makes one).
Json graph_record(const Graph& graph, TensorList& tensors);
Graph graph_from_record(const Json& record, const TensorList& tensors, const std::string& path);

}  // namespace pare
