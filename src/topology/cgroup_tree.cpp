// SPDX-License-Identifier: Apache-2.0
#include "topology/cgroup_tree.hpp"

#include <fstream>
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
  const std::string mounts = root + "/sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) {  // "<id>:<controllers>:<group>"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"", "/unified"}) {
        visit_upwards(mounts + mount, group, CgroupVersion::v2, visit);
      }
    } else if (lists(controllers, controller)) {
      for (const std::string& mount : mounts_of(controller)) {
        visit_upwards(mounts + mount, group, CgroupVersion::v1, visit);
      }
    }
  }
}

}  // namespace outboard::topology
