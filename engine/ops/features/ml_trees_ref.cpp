// Ensembles of decision trees: both forms become one list of nodes, checked before anything runs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/ops/features/ml.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

enum class Mode : std::uint8_t {
  kLessEqual,
  kLess,
  kGreaterEqual,
  kGreater,
  kEqual,
  kNotEqual,
  kMember,
  kLeaf
};

struct TreeNode {
  Mode mode = Mode::kLeaf;
  std::int64_t feature = 0;
  double value = 0;
  bool missing_is_true = false;
  std::size_t yes = 0, no = 0;
  std::vector<std::pair<std::size_t, double>> votes;  // of a leaf: target and weight
  std::set<double> members;
};

struct Trees {
  std::vector<TreeNode> nodes;
  std::vector<std::size_t> roots;
  std::size_t targets = 0;
  Numbers base;
  std::string aggregate = "SUM", transform = "NONE";
};

[[noreturn]] void bad(const Node& node, const char* what) {
  fail(ErrorCode::kBadFile, "{}: {}", node.op, what);
}

// Attribute `key` as floats, or `key`_as_tensor.
Numbers numbers_of(const Node& node, const std::string& key) {
  Numbers out;
  const Tensor* tensor = node.attr_tensor(key + "_as_tensor");
  if (tensor == nullptr && node.has_attr(key) && std::holds_alternative<Tensor>(node.attrs.find(key)->second))
    tensor = node.attr_tensor(key);
  if (tensor == nullptr) {
    for (const float v : node.attr_floats(key)) out.push_back(static_cast<double>(v));
    return out;
  }
  out.resize(static_cast<std::size_t>(tensor->size()));
  convert(tensor->view(), {DType::kF64, tensor->dims(), out.data()});
  return out;
}

Trees old_form(const Node& node) {
  const bool classifier = node.op == "TreeEnsembleClassifier";
  const Ints trees = node.attr_ints("nodes_treeids"), ids = node.attr_ints("nodes_nodeids"),
             features = node.attr_ints("nodes_featureids"), yes = node.attr_ints("nodes_truenodeids"),
             no = node.attr_ints("nodes_falsenodeids"),
             missing = node.attr_ints("nodes_missing_value_tracks_true");
  const Numbers values = numbers_of(node, "nodes_values");
  const auto found = node.attrs.find("nodes_modes");
  const auto* modes =
      found == node.attrs.end() ? nullptr : std::get_if<std::vector<std::string>>(&found->second);
  const std::size_t n = trees.size();
  if (modes == nullptr || ids.size() != n || features.size() != n || yes.size() != n || no.size() != n ||
      values.size() != n || modes->size() != n || (!missing.empty() && missing.size() != n))
    bad(node, "lists of nodes of different lengths");
  static const std::map<std::string, Mode> kModes = {{"BRANCH_LEQ", Mode::kLessEqual},
                                                     {"BRANCH_LT", Mode::kLess},
                                                     {"BRANCH_GTE", Mode::kGreaterEqual},
                                                     {"BRANCH_GT", Mode::kGreater},
                                                     {"BRANCH_EQ", Mode::kEqual},
                                                     {"BRANCH_NEQ", Mode::kNotEqual},
                                                     {"LEAF", Mode::kLeaf}};
  Trees t;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> places;
  for (std::size_t i = 0; i < n; ++i)
    if (!places.emplace(std::make_pair(trees[i], ids[i]), i).second) bad(node, "a node twice");
  std::vector<bool> is_child(n, false);
  for (std::size_t i = 0; i < n; ++i) {
    TreeNode one;
    const auto mode = kModes.find((*modes)[i]);
    if (mode == kModes.end()) bad(node, "an unknown mode of a node");
    one.mode = mode->second;
    one.feature = features[i], one.value = values[i],
    one.missing_is_true = !missing.empty() && missing[i] != 0;
    if (one.mode != Mode::kLeaf) {
      const auto a = places.find({trees[i], yes[i]}), b = places.find({trees[i], no[i]});
      if (a == places.end() || b == places.end()) bad(node, "a branch that leads nowhere");
      one.yes = a->second, one.no = b->second;
      is_child[one.yes] = is_child[one.no] = true;
    }
    t.nodes.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < n; ++i)
    if (!is_child[i]) t.roots.push_back(i);
  const std::string side = classifier ? "class" : "target";
  const Ints vote_trees = node.attr_ints(side + "_treeids"), vote_nodes = node.attr_ints(side + "_nodeids"),
             targets = node.attr_ints(side + "_ids");
  const Numbers weights = numbers_of(node, side + "_weights");
  if (vote_nodes.size() != vote_trees.size() || targets.size() != vote_trees.size() ||
      weights.size() != vote_trees.size())
    bad(node, "lists of leaves of different lengths");
  std::size_t labels = node.attr_ints("classlabels_int64s").size();
  if (const auto words = node.attrs.find("classlabels_strings"); words != node.attrs.end())
    if (const auto* list = std::get_if<std::vector<std::string>>(&words->second))
      labels = std::max(labels, list->size());
  t.targets =
      classifier
          ? labels
          : static_cast<std::size_t>(std::max<std::int64_t>(0, node.attr("n_targets", std::int64_t{1})));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto place = places.find({vote_trees[i], vote_nodes[i]});
    if (place == places.end() || targets[i] < 0 || targets[i] >= static_cast<std::int64_t>(t.targets))
      bad(node, "a leaf of no tree, or for no target");
    t.nodes[place->second].votes.emplace_back(static_cast<std::size_t>(targets[i]), weights[i]);
  }
  t.base = numbers_of(node, "base_values");
  t.aggregate = node.attr("aggregate_function", "SUM");
  t.transform = node.attr("post_transform", "NONE");
  return t;
}

Trees new_form(const Node& node) {
  const Ints features = node.attr_ints("nodes_featureids"), yes = node.attr_ints("nodes_truenodeids"),
             no = node.attr_ints("nodes_falsenodeids"), yes_leaf = node.attr_ints("nodes_trueleafs"),
             no_leaf = node.attr_ints("nodes_falseleafs"),
             missing = node.attr_ints("nodes_missing_value_tracks_true"),
             roots = node.attr_ints("tree_roots"), targets = node.attr_ints("leaf_targetids");
  const Numbers splits = numbers_of(node, "nodes_splits"), modes = numbers_of(node, "nodes_modes"),
                weights = numbers_of(node, "leaf_weights"), members = numbers_of(node, "membership_values");
  const std::size_t n = features.size(), leaves = targets.size();
  if (yes.size() != n || no.size() != n || yes_leaf.size() != n || no_leaf.size() != n ||
      splits.size() != n || modes.size() != n || weights.size() != leaves ||
      (!missing.empty() && missing.size() != n))
    bad(node, "lists of nodes of different lengths");
  Trees t;
  t.targets = static_cast<std::size_t>(std::max<std::int64_t>(0, node.attr("n_targets", std::int64_t{1})));
  const auto next = [&](std::int64_t id, bool leaf) {
    if (id < 0 || id >= static_cast<std::int64_t>(leaf ? leaves : n))
      bad(node, "a branch that leads nowhere");
    return static_cast<std::size_t>(id) + (leaf ? n : 0);
  };
  auto member = members.begin();
  for (std::size_t i = 0; i < n; ++i) {
    TreeNode one;
    if (!(modes[i] >= 0 && modes[i] <= 6)) bad(node, "an unknown mode of a node");
    one.mode = static_cast<Mode>(static_cast<int>(modes[i]));
    one.feature = features[i], one.value = splits[i],
    one.missing_is_true = !missing.empty() && missing[i] != 0;
    one.yes = next(yes[i], yes_leaf[i] != 0), one.no = next(no[i], no_leaf[i] != 0);
    if (one.mode == Mode::kMember) {  // sets stand one behind the other, NaN between them
      for (; member != members.end() && !std::isnan(*member); ++member) one.members.insert(*member);
      if (member != members.end()) ++member;
    }
    t.nodes.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < leaves; ++i) {
    TreeNode leaf;
    if (targets[i] < 0 || targets[i] >= static_cast<std::int64_t>(t.targets))
      bad(node, "a leaf for no target");
    leaf.votes.emplace_back(static_cast<std::size_t>(targets[i]), weights[i]);
    t.nodes.push_back(std::move(leaf));
  }
  for (const std::int64_t root : roots) t.roots.push_back(next(root, false));
  static const char* const kAggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  static const char* const kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const std::int64_t aggregate = node.attr("aggregate_function", std::int64_t{1}),
                     transform = node.attr("post_transform", std::int64_t{0});
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4)
    bad(node, "an unknown aggregate_function or post_transform");
  t.aggregate = kAggregates[aggregate], t.transform = kTransforms[transform];
  return t;
}

bool goes_yes(const TreeNode& node, double x) {
  if (std::isnan(x) && node.missing_is_true) return true;
  switch (node.mode) {
    case Mode::kLessEqual:
      return x <= node.value;
    case Mode::kLess:
      return x < node.value;
    case Mode::kGreaterEqual:
      return x >= node.value;
    case Mode::kGreater:
      return x > node.value;
    case Mode::kEqual:
      return x == node.value;
    case Mode::kNotEqual:
      return x != node.value;
    default:
      return node.members.count(x) != 0;
  }
}

// Scores of one sample without base and transform; which targets have any.
Numbers scores_of(const Trees& t, const double* x, std::int64_t columns, std::vector<bool>& voted) {
  Numbers scores(t.targets, 0);
  voted.assign(t.targets, false);
  for (const std::size_t root : t.roots) {
    std::size_t at = root, steps = 0;
    while (t.nodes[at].mode != Mode::kLeaf) {
      const TreeNode& node = t.nodes[at];
      if (node.feature < 0 || node.feature >= columns)
        fail(ErrorCode::kBadFile, "a tree asks for column {} of {}", node.feature, columns);
      if (++steps > t.nodes.size()) fail(ErrorCode::kBadFile, "a tree leads back to itself");
      at = goes_yes(node, x[node.feature]) ? node.yes : node.no;
    }
    for (const auto& vote : t.nodes[at].votes) {
      double& score = scores[vote.first];
      if (t.aggregate == "MIN" || t.aggregate == "MAX")
        score = !voted[vote.first]     ? vote.second
                : t.aggregate == "MIN" ? std::min(score, vote.second)
                                       : std::max(score, vote.second);
      else
        score += vote.second;
      voted[vote.first] = true;
    }
  }
  if (t.aggregate == "AVERAGE" && !t.roots.empty())
    for (double& score : scores) score /= static_cast<double>(t.roots.size());
  return scores;
}

void put(const TensorView& y, std::int64_t first, const Numbers& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (y.dtype == DType::kF64)
      y.mut<double>()[first + static_cast<std::int64_t>(i)] = values[i];
    else
      y.mut<float>()[first + static_cast<std::int64_t>(i)] = static_cast<float>(values[i]);
  }
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  return std::make_shared<Trees>(call.node->op == "TreeEnsemble" ? new_form(*call.node)
                                                                 : old_form(*call.node));
}

void run_regressor(const OpCall& call) {
  const Trees& t = *static_cast<const Trees*>(call.prepared);
  const ml::Rows x(call.in[0]);
  std::vector<bool> voted;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    Numbers scores = scores_of(t, x.row(r), x.columns, voted);
    if (!t.base.empty() && t.base.size() != scores.size())
      bad(*call.node, "base_values are not one a target");
    for (std::size_t i = 0; i < t.base.size(); ++i) scores[i] += t.base[i];
    if (!scores.empty()) ml::post_transform(scores, t.transform);
    put(call.out[0], r * static_cast<std::int64_t>(t.targets), scores);
  }
}

void run_classifier(const OpCall& call) {
  const Trees& t = *static_cast<const Trees*>(call.prepared);
  const ml::Rows x(call.in[0]);
  std::set<std::size_t> classes;
  bool positive = true;
  for (const TreeNode& node : t.nodes)
    for (const auto& vote : node.votes) {
      classes.insert(vote.first);
      positive = positive && vote.second >= 0;
    }
  const bool binary = t.targets == 2 && classes.size() == 1;  // votes of one class speak for two
  std::vector<bool> voted;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    Numbers scores = scores_of(t, x.row(r), x.columns, voted);
    std::size_t label = 0;
    if (binary) {
      scores = {scores[*classes.begin()]};
      if (!t.base.empty()) scores[0] += t.base.back();
      label = ml::binary_scores(scores, positive, t.transform) ? 1 : 0;
    } else {
      if (!t.base.empty() && t.base.size() != scores.size())
        bad(*call.node, "base_values are not one a class");
      for (std::size_t i = 0; i < t.base.size(); ++i) scores[i] += t.base[i];
      label = static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
      ml::post_transform(scores, t.transform);
    }
    ml::write_label(call, r, label);
    put(call.out[1], r * static_cast<std::int64_t>(t.targets), scores);
  }
}

}  // namespace

void add_tree_references(Registry& registry) {
  Kernel kernel;
  kernel.domain = ml::kDomain;
  kernel.why_not = ml::rows_reason;
  kernel.prepare = prepare;
  for (const char* op : {"TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier"}) {
    kernel.op = op;
    kernel.name = kernel_name(std::string(ml::kDomain) + "." + op, "reference");
    kernel.run = op == std::string_view("TreeEnsembleClassifier") ? run_classifier : run_regressor;
    registry.add(kernel);
  }
}

}  // namespace pare
