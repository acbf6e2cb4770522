#include "recipes/grammar/load.h"

#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "recipes/grammar/fields.h"
#include "recipes/grammar/mistakes.h"

namespace pare {
namespace {

constexpr int kMaxExtends = 8;  // recipes that extend each other in a row
const std::string kBuiltinPrefix = "builtin/";

struct SetOption {
  std::string key, value;
  bool used_as_variable = false;
};

std::vector<SetOption> split_sets(const std::vector<std::string>& sets) {
  std::vector<SetOption> out;
  for (const std::string& text : sets) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw make_error(ErrorCode::kUsage, "'{}' is not of the form KEY=VALUE", text)
          .at("--set " + text)
          .hint("for example --set evaluate.gates.0.max=0.01");
    SetOption option;
    option.key = text.substr(0, equals);
    option.value = text.substr(equals + 1);
    out.push_back(std::move(option));
  }
  return out;
}

// Replaces ${NAME} in every scalar; "$${" stays as "${".
class Substitution {
 public:
  explicit Substitution(std::vector<SetOption>& sets) : sets_(sets) {}

  void walk(TreeNode& node) {
    if (node.kind == TreeNode::Kind::kScalar && node.text.find("${") != std::string::npos) replace(node);
    for (TreeNode& item : node.items) walk(item);
    for (TreeMember& member : node.members) walk(member.value);
  }

 private:
  void replace(TreeNode& node) {
    std::string out;
    const std::string& text = node.text;
    for (std::size_t i = 0; i < text.size();) {
      if (text.compare(i, 3, "$${") == 0) {
        out += "${";
        i += 3;
      } else if (text.compare(i, 2, "${") == 0) {
        const std::size_t end = text.find('}', i);
        if (end == std::string::npos)
          throw make_error(ErrorCode::kUsage, "'{}' has a '${{' without its '}}'", text)
              .at(to_string(node.place))
              .hint("write $${ for a plain ${");
        out += value_of(text.substr(i + 2, end - i - 2), node);
        i = end + 1;
      } else {
        out += text[i++];
      }
      if (out.size() > limits::kMaxNameBytes)
        throw make_error(ErrorCode::kUsage, "a value grows beyond {} bytes", limits::kMaxNameBytes)
            .at(to_string(node.place))
            .hint("shorten the value, or the variable in it");
    }
    node.text = std::move(out);
  }

  std::string value_of(const std::string& name, const TreeNode& node) {
    for (SetOption& option : sets_) {
      if (option.key != name) continue;
      option.used_as_variable = true;
      return option.value;
    }
    if (const char* value = name.empty() ? nullptr : std::getenv(name.c_str())) return value;
    throw make_error(ErrorCode::kUsage, "the variable ${{{}}} has no value", name)
        .at(to_string(node.place))
        .hint(fmt::format("give it one: --set {}=VALUE, or in the environment", name));
  }

  std::vector<SetOption>& sets_;
};

void drop_member(TreeNode& node, const char* key) {
  for (std::size_t i = 0; i < node.members.size(); ++i)
    if (node.members[i].key == key)
      node.members.erase(node.members.begin() + static_cast<std::ptrdiff_t>(i--));
}

// The recipe with those that it extends below it.
TreeNode with_bases(TreeNode tree, const std::string& folder, const std::string& prefix, int depth) {
  TreeNode* extends = tree.find("extends");
  if (extends == nullptr) return tree;
  const std::string where = to_string(extends->place);
  if (extends->kind != TreeNode::Kind::kScalar || extends->text.empty())
    throw make_error(ErrorCode::kUsage, "'extends' must be builtin/NAME or a recipe file, not {}",
                     kind_name(*extends))
        .at(where)
        .hint("`pare recipe list` shows the built-in ones");
  if (depth >= kMaxExtends)
    throw make_error(ErrorCode::kUsage, "more than {} recipes extend each other: a circle?", kMaxExtends)
        .at(where)
        .hint("look for a recipe that extends itself by way of another");
  const std::string name = extends->text;
  std::string text, base_folder = folder, base_prefix = prefix;
  auto source = std::make_shared<TreeSource>();
  if (name.rfind(kBuiltinPrefix, 0) == 0) {
    text = find_builtin(name, where).text;
    source->name = name;
  } else {
    const std::string path = join_path(folder, name);
    try {
      text = read_text_file(path, limits::kMaxRecipeBytes);
    } catch (Error& error) {
      throw error.at(where);
    }
    base_folder = parent_path(path);
    const std::string relative = parent_path(name);
    base_prefix = relative == "." ? prefix : join_path(prefix, relative);
    source->name = path;
    source->folder = base_prefix;
  }
  TreeNode base = with_bases(parse_yaml(text, source), base_folder, base_prefix, depth + 1);
  merge_tree(base, std::move(tree));
  drop_member(base, "extends");
  return base;
}

// Canonical text is read again by --resume and by people: a plain "${" must stay one.
void escape_variables(TreeNode& node) {
  for (std::size_t at = node.text.find("${"); at != std::string::npos; at = node.text.find("${", at + 3))
    node.text.insert(at, "$");
  for (TreeNode& item : node.items) escape_variables(item);
  for (TreeMember& member : node.members) escape_variables(member.value);
}

constexpr const char* kExtends = "extends";

// With `others`, all keys but `extends`, which must be known before any base is read.
void apply_sets(TreeNode& tree, const std::vector<SetOption>& sets, bool others) {
  for (const SetOption& option : sets) {
    if (option.used_as_variable || (option.key == kExtends) == others) continue;
    auto source = std::make_shared<TreeSource>();
    source->name = "--set " + option.key;
    source->has_lines = false;
    TreeNode value = parse_yaml(option.value, source, true);
    if (value.place.source == nullptr) value.place = {source, 1, 1};
    set_tree(tree, option.key, std::move(value));
  }
}

}  // namespace

std::string Recipe::resolve(const std::string& path) const {
  return path.empty() ? path : join_path(folder, path);
}

LoadedRecipe parse_recipe(std::string_view text, const std::string& name, const std::string& folder,
                          const RecipeOptions& options) {
  auto source = std::make_shared<TreeSource>();
  source->name = name;
  std::vector<SetOption> sets = split_sets(options.sets);
  LoadedRecipe loaded;
  Mistakes mistakes;
  loaded.tree = parse_yaml(text, source);
  apply_sets(loaded.tree, sets, false);
  const TreeNode alone = loaded.tree;
  mistakes.collect([&] { loaded.tree = with_bases(std::move(loaded.tree), folder, "", 0); });
  const bool lacks_base = mistakes.any();
  if (lacks_base) {  // go on without the base: the rest of the mistakes
    loaded.tree = alone;
    drop_member(loaded.tree, "extends");
  }
  Substitution(sets).walk(loaded.tree);
  apply_sets(loaded.tree, sets, true);
  read_fields(
      loaded.tree, "the recipe", [&](Fields& f) { describe(f, loaded.recipe); }, mistakes, lacks_base);
  mistakes.raise();
  loaded.recipe.folder = folder;
  if (loaded.recipe.name.empty()) loaded.recipe.name = file_stem(name);
  check_recipe(loaded.recipe, loaded.tree, options.check_files);
  TreeNode canonical = write_fields([&](Fields& f) { describe(f, loaded.recipe); });
  escape_variables(canonical);
  loaded.text = emit_yaml(canonical);
  return loaded;
}

std::string model_recipe_hash(const Recipe& recipe) {
  Recipe part = recipe;
  part.name.clear();
  part.evaluate.reset();
  part.build.reset();
  part.report.clear();
  part.datasets.clear();
  if (recipe.calibrate && !recipe.calibrate->data.empty()) {
    DatasetEntry& entry = part.datasets[recipe.calibrate->data];
    entry = recipe.datasets.at(recipe.calibrate->data);
    entry.spec.batch = DatasetSpec().batch;
  }
  return hex(sha256(emit_yaml(write_fields([&](Fields& f) { describe(f, part); }))));
}

std::string recipe_text_in(const Recipe& recipe, const std::string& folder) {
  const auto moved = [&](const std::string& key, const std::string& path) {
    std::string file, inside;
    const bool labels = key == "labels" || key == "width_from";  // may be a key inside the data's own file
    if (labels && split_file_key(recipe.resolve(path), file, inside))
      return relative_path(file, folder) + path.substr(path.size() - inside.size() - 1);
    if (labels && !path_exists(recipe.resolve(path))) return path;
    return relative_path(recipe.resolve(path), folder);
  };
  Recipe copy = recipe;
  TreeNode tree = write_fields([&](Fields& f) { describe(f, copy); }, moved);
  escape_variables(tree);
  return emit_yaml(tree);
}

LoadedRecipe load_recipe(const std::string& path, const RecipeOptions& options) {
  if (path.rfind(kBuiltinPrefix, 0) == 0)
    return parse_recipe(find_builtin(path, path).text, path, ".", options);
  return parse_recipe(read_text_file(path, limits::kMaxRecipeBytes), path, parent_path(path), options);
}

DatasetEntry load_dataset_file(const std::string& path) {
  auto source = std::make_shared<TreeSource>();
  source->name = path;
  source->folder = parent_path(path);
  DatasetEntry entry;
  const TreeNode tree = parse_yaml(read_text_file(path, limits::kMaxRecipeBytes), source);
  Mistakes mistakes;
  read_fields(
      tree, "the data set", [&](Fields& f) { describe_dataset(f, entry); }, mistakes);
  mistakes.raise();
  return entry;
}

const BuiltinRecipe& find_builtin(const std::string& name, const std::string& where) {
  const std::string bare = name.rfind(kBuiltinPrefix, 0) == 0 ? name.substr(kBuiltinPrefix.size()) : name;
  std::vector<const char*> names;
  for (const BuiltinRecipe& recipe : builtin_recipes()) {
    if (bare == recipe.name) return recipe;
    names.push_back(recipe.name);
  }
  const std::string near = nearest_word(bare, names.data(), names.size());
  throw make_error(ErrorCode::kUsage, "there is no built-in recipe '{}'", bare)
      .at(where)
      .hint(near.empty() ? "`pare recipe list` shows them" : fmt::format("did you mean 'builtin/{}'?", near));
}

}  // namespace pare
