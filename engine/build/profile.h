// Optimization profiles: which sizes the inputs of an engine may have.
//
// A dimension is named as the model names it ("batch"), or INPUT.AXIS where the model has no name for it
// ("image.0"). An engine takes every size from min to max; it is timed at opt.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_fwd.h"
#include "engine/ir/graph.h"

namespace pare {

struct ProfileDim {
  std::string name;
  std::int64_t min = 1, opt = 1, max = 1;  // 1 <= min <= opt <= max
};
using ShapeProfile = std::vector<ProfileDim>;
using NamedSizes = std::map<std::string, std::int64_t>;
using InputShapes = std::vector<std::pair<std::string, Dims>>;

ProfileDim parse_profile(const std::string& text);  // "batch=1x8x32"; error kUsage
Json profile_json(const ShapeProfile& profile);
ShapeProfile read_profile(const Json& list, const std::string& what);  // error kBadFile
std::string to_string(const ShapeProfile& profile);                    // "batch 1..32 (8)"

enum class ProfilePoint : std::uint8_t { kMin, kOpt, kMax };
NamedSizes sizes_at(const ShapeProfile& profile, ProfilePoint point);

// A copy in which only the dimensions of the profile are open, by their names; others are known, given, or
// `batch` when they are the first of an input. Shapes and what follows from them are computed. Error kUsage
// for an open size that is neither, and for a name that no open dimension has.
Graph open_sizes(const Graph& graph, std::int64_t batch, const InputShapes& given,
                 const ShapeProfile& profile);
// The same with nothing left open.
Graph fix_sizes(const Graph& graph, std::int64_t batch, const InputShapes& given);
// The shapes of the inputs of such a graph at these sizes.
InputShapes shapes_at(const Graph& open, const NamedSizes& sizes);
// The sizes that inputs of these shapes mean. Error kUsage naming the input, its shape and the profile when
// they do not fit it.
NamedSizes sizes_of(const Graph& open, const ShapeProfile& profile, const std::vector<Dims>& inputs);

}  // namespace pare
