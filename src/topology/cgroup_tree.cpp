// SPDX-License-Identifier: Apache-2.0
#include "topology/cgroup_tree.hpp"

#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

namespace outboard::topology {
namespace {

/// Where systems mount the v1 hierarchy of a controller.
std::vector<std::string> mounts_of(const std::string& controller) {
  if (controller == "cpu") return {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu"};
  return {"/" + controller};
}

bool lists(const std::string& controllers, const std::string& controller) {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

struct Mount {
  std::string folder;   ///< where it is
  std::string top;      ///< the group that is there: not always the hierarchy's own top
  std::string options;  ///< v1: the controllers are among them
  CgroupVersion version = CgroupVersion::v1;
};

/// "36 35 98:0 /top /sys/fs/cgroup/cpu rw,relatime shared:7 - cgroup cgroup rw,cpu"
std::optional<Mount> parse_mount(const std::string& line) {
  std::istringstream words(line);
  std::string id, parent, device, word, type, source;
  Mount mount;
  if (!(words >> id >> parent >> device >> mount.top >> mount.folder)) return std::nullopt;
  while (words >> word && word != "-") {
  }
  if (!(words >> type >> source >> mount.options)) return std::nullopt;
  if (type != "cgroup" && type != "cgroup2") return std::nullopt;
  if (type == "cgroup2") mount.version = CgroupVersion::v2;
  return mount;
}

std::vector<Mount> read_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    if (auto mount = parse_mount(line)) mounts.push_back(std::move(*mount));
  }
  return mounts;
}

/// Where this system mounts the hierarchy; where systems do so if it does not say.
std::vector<Mount> mounts_for(const std::vector<Mount>& all, CgroupVersion version,
                              const std::string& controller) {
  std::vector<Mount> mounts;
  for (const Mount& mount : all) {
    if (mount.version != version) continue;
    if (version == CgroupVersion::v2 || lists(mount.options, controller)) mounts.push_back(mount);
  }
  if (!mounts.empty()) return mounts;
  const std::vector<std::string> usual = version == CgroupVersion::v2
                                             ? std::vector<std::string>{"", "/unified"}
                                             : mounts_of(controller);
  for (const std::string& name : usual)
    mounts.push_back({"/sys/fs/cgroup" + name, "/", "", version});
  return mounts;
}

/// `group` as a path below the mount; "" if it is not below, or is its top.
std::string below(const Mount& mount, const std::string& group) {
  if (mount.top == "/") return group;
  const bool inside = group.starts_with(mount.top + "/");
  return inside ? group.substr(mount.top.size()) : "";
}

/// `group` is "/a/b", below `mount`.
void visit_upwards(const std::string& mount, std::string group, CgroupVersion version,
                   const GroupVisitor& visit) {
  while (!group.empty() && group.back() == '/') group.pop_back();
  if (group.find("/..") != std::string::npos) group.clear();
  while (!group.empty()) {
    visit(version, mount + group);
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  visit(version, mount);
}

}  // namespace

void visit_groups(const std::string& root, const std::string& controller,
                  const GroupVisitor& visit) {
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::vector<Mount> mounts = read_mounts(root);
  for (std::string line; std::getline(groups, line);) {  // "<id>:<controllers>:<group>"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const auto version = controllers.empty() ? CgroupVersion::v2 : CgroupVersion::v1;
    if (version == CgroupVersion::v1 && !lists(controllers, controller)) continue;
    for (const Mount& mount : mounts_for(mounts, version, controller)) {
      visit_upwards(root + mount.folder, below(mount, group), version, visit);
    }
  }
}

}  // namespace outboard::topology
