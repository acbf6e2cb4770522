// Paths and folders as plain strings; <filesystem> stays in the .cpp. All errors are Error with the path in
// the message: kBadFile for what is read, kDevice for what is made or removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pare {

// Of the text alone; no file is looked at.
std::string join_path(const std::string& folder, const std::string& name);  // an absolute name wins
std::string parent_path(const std::string& path);                           // "." for a bare name
std::string file_name(const std::string& path);                             // the last part
std::string file_stem(const std::string& path);                             // without its extension
std::string file_extension(const std::string& path);                        // lower case with the dot: ".npy"

// False, never an error, also when the folder may not be searched.
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
bool is_regular_file(const std::string& path);

std::uint64_t file_size(const std::string& path);
std::string canonical_path(
    const std::string& path);  // absolute, links resolved; the last parts may not exist
// `path` as it is written in `folder`: "../models/x". Links are resolved; an absolute path stays.
std::string relative_path(const std::string& path, const std::string& folder);
std::vector<std::string> list_directory(const std::string& path);  // names, sorted by bytes, without . and ..
std::string working_directory();

void make_directories(const std::string& path);  // parents too; fine if it is there
void remove_file(const std::string& path);       // fine if it is not there
void remove_tree(const std::string& path);       // fine if it is not there
// `from` and `to` on one file system; replaces `to`.
void rename_path(const std::string& from, const std::string& to);
std::string make_temporary_directory();  // a new, empty, private folder below TMPDIR or /tmp

}  // namespace pare
