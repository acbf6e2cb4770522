#include "engine/base/paths.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "engine/base/error.h"

namespace pare {

namespace fs = std::filesystem;

namespace {

void check(const std::error_code& error, ErrorCode code, const char* doing, const std::string& path) {
  if (error) fail(code, "cannot {} '{}': {}", doing, path, error.message());
}

}  // namespace

std::string join_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

std::string parent_path(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }
std::string file_stem(const std::string& path) { return fs::path(path).stem().string(); }

std::string file_extension(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return extension;
}

bool path_exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_regular_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::uint64_t file_size(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  check(error, ErrorCode::kBadFile, "find the size of", path);
  return size;
}

std::string canonical_path(const std::string& path) {
  std::error_code error;
  // Made absolute first: of a relative path of which nothing exists, the library leaves it relative.
  const fs::path absolute = fs::absolute(path, error);
  check(error, ErrorCode::kBadFile, "find", path);
  const fs::path canonical = fs::weakly_canonical(absolute, error);
  check(error, ErrorCode::kBadFile, "find", path);
  return canonical.string();
}

std::string relative_path(const std::string& path, const std::string& folder) {
  if (path.empty() || path[0] == '/') return path;
  const std::string from = canonical_path(folder) + "/", to = canonical_path(path);
  std::size_t same = 0;  // the folders that both have
  for (std::size_t i = 0; i < from.size() && i < to.size() && from[i] == to[i]; ++i)
    if (from[i] == '/') same = i + 1;
  std::string up;
  for (std::size_t i = same; i < from.size(); ++i) up += from[i] == '/' ? "../" : "";
  return up + to.substr(same);
}

std::vector<std::string> list_directory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(path, error);
  check(error, ErrorCode::kBadFile, "list the folder", path);
  while (entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
    check(error, ErrorCode::kBadFile, "list the folder", path);
  }
  std::sort(names.begin(), names.end());  // char_traits compares as unsigned bytes
  return names;
}

std::string working_directory() {
  std::error_code error;
  const fs::path path = fs::current_path(error);
  check(error, ErrorCode::kDevice, "find", "the working directory");
  return path.string();
}

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error && is_directory(path)) return;  // made by someone else in between
  if (error || !is_directory(path))
    throw make_error(ErrorCode::kDevice, "cannot make the folder '{}': {}", path,
                     error ? error.message() : "it is a file")
        .hint("check the path and who may write there, or name another folder");
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw make_error(ErrorCode::kDevice, "cannot remove '{}': {}", path, std::strerror(errno))
        .hint("look at its owner and permissions");
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check(error, ErrorCode::kDevice, "remove", path);
}

void rename_path(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error)
    throw make_error(ErrorCode::kDevice, "cannot rename '{}' to '{}': {}", from, to, error.message())
        .hint("look at owner and permissions of the folder");
}

std::string make_temporary_directory() {
  const char* folder = std::getenv("TMPDIR");
  std::string path = join_path(folder != nullptr && *folder != '\0' ? folder : "/tmp", "pare-XXXXXX");
  if (::mkdtemp(path.data()) == nullptr)
    throw make_error(ErrorCode::kDevice, "cannot make a temporary folder '{}': {}", path,
                     std::strerror(errno))
        .hint("set TMPDIR to a folder that may be written");
  return path;
}

}  // namespace pare
