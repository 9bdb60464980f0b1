// Catches: threads bound to the cores of the wrong NUMA node, or bound where a launcher has done
// it already, where there is nothing to choose from or the GPU is unknown.
#include "launcher/ranks/gpu_binding.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "runtime/base/error.h"
#include "tests/reference/text_checks.h"

namespace lockstep::launcher {
namespace {

std::string cpuset(const char* cpus, const char* nodes) {
  return fmt::format(
      R"(cpuset="{0}" complete_cpuset="{0}" nodeset="{1}" complete_nodeset="{1}")", cpus, nodes);
}

std::string processor(int number, const char* node) {
  return fmt::format(R"(<object type="PU" os_index="{}" gp_index="{}" {}/>)",
                     number,
                     100 + number,
                     cpuset(fmt::format("0x{:08x}", 1 << number).c_str(), node));
}

std::string gpu(int number, const std::string& bus) {
  return fmt::format(
      R"(<object type="Bridge" gp_index="{}" bridge_type="0-1" depth="0" bridge_pci="0000:[{}-{}]">
           <object type="PCIDev" gp_index="{}" pci_busid="0000:{}:00.0"
                   pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="0"/>
         </object>)",
      200 + number,
      bus,
      bus,
      300 + number,
      bus);
}

// A package with a NUMA node, two CPUs and a GPU.
std::string package(int number, const char* cpus, const char* node, const std::string& bus) {
  return fmt::format(
      R"(<object type="Package" os_index="{0}" gp_index="{1}" {2}>
           <object type="NUMANode" os_index="{0}" gp_index="{3}" {2}/>{4}{5}{6}</object>)",
      number,
      10 + number,
      cpuset(cpus, node),
      20 + number,
      processor(2 * number, node),
      processor(2 * number + 1, node),
      gpu(number, bus));
}

std::string machine(const std::string& packages, const char* cpus, const char* nodes) {
  return fmt::format(R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0" gp_index="1" {}
 allowed_cpuset="{}" allowed_nodeset="{}">{}</object></topology>)",
                     cpuset(cpus, nodes),
                     cpus,
                     nodes,
                     packages);
}

const std::string kTwoNodes = machine(
    package(0, "0x00000003", "0x00000001", "1b") + package(1, "0x0000000c", "0x00000002", "af"),
    "0x0000000f",
    "0x00000003");
const std::string kOneNode =
    machine(package(0, "0x00000003", "0x00000001", "1b"), "0x00000003", "0x00000001");

TEST(GpuBinding, CoresNextToTheGpu) {
  const GpuBinding first = plan_gpu_binding("0000:1b:00.0", kTwoNodes, "0-3");
  EXPECT_EQ(first.cpus, "0-1");
  EXPECT_EQ(first.text, "threads are bound to CPUs 0-1, next to the GPU");
  EXPECT_EQ(plan_gpu_binding("0000:AF:00.0", kTwoNodes, "0-3").cpus, "2-3");
}

TEST(GpuBinding, WhatNobodyAskedForGivesWay) {
  EXPECT_EQ(plan_gpu_binding("0000:1b:00.0", kTwoNodes, "2", false).cpus, "0-1");
  EXPECT_EQ(plan_gpu_binding("0000:1b:00.0", kOneNode, "1", false).cpus, "0-1")
      << "all are as near, but one is too few";
  EXPECT_EQ(plan_gpu_binding("0000:77:00.0", kTwoNodes, "2", false).cpus, "0-3");
  EXPECT_EQ(plan_gpu_binding("0000:1b:00.0", kOneNode, "0-1", false).cpus, "");
}

// The variables are those that Open MPI 4.1.4 and 5.0.11, MPICH 5 and Intel MPI 2021 set.
TEST(GpuBinding, LaunchersThatBindUnasked) {
  struct Case {
    const char* sets;
    std::vector<const char*> if_asked;
  };
  const std::vector<Case> cases = {
      {"OMPI_MCA_orte_bound_at_launch",
       {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_rmaps_base_mapping_policy"}},
      {"PRTE_LAUNCHED",
       {"OMPI_MCA_hwloc_base_binding_policy",
        "OMPI_MCA_rmaps_base_mapping_policy",
        "PRTE_MCA_hwloc_default_binding_policy",
        "PRTE_MCA_rmaps_default_mapping_policy"}},
      {"I_MPI_PIN_MAPPING",
       {"I_MPI_PIN", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PIN_CELL"}}};
  const auto clear = [&] {
    for (const Case& each : cases) {
      unsetenv(each.sets);
      for (const char* name : each.if_asked) unsetenv(name);
    }
  };
  for (const Case& each : cases) {
    clear();
    setenv(each.sets, "1", 1);
    EXPECT_FALSE(binding_asked_for()) << each.sets;
    setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1", 1);
    EXPECT_FALSE(binding_asked_for()) << each.sets << " within a job of Slurm";
    unsetenv("SLURM_CPU_BIND");
    for (const char* name : each.if_asked) {
      setenv(name, "core", 1);
      EXPECT_TRUE(binding_asked_for()) << each.sets << ", " << name;
      unsetenv(name);
    }
  }
  clear();
}

TEST(GpuBinding, OtherLaunchersBindOnlyIfAsked) {
  EXPECT_TRUE(binding_asked_for()) << "taskset";
  for (const char* name : {"SLURM_CPU_BIND", "HYDRA_USER_PROVIDED_BINDING", "PMI_RANK"}) {
    setenv(name, "1", 1);
    EXPECT_TRUE(binding_asked_for()) << name;
    unsetenv(name);
  }
}

TEST(GpuBinding, LaunchersBindingStays) {
  const GpuBinding binding = plan_gpu_binding("0000:1b:00.0", kTwoNodes, "2");
  EXPECT_EQ(binding.cpus, "");
  EXPECT_CONTAINS(binding.text, "they are bound to CPUs 2 already");
}

TEST(GpuBinding, NothingToChooseFrom) {
  const GpuBinding binding = plan_gpu_binding("0000:1b:00.0", kOneNode, "0-1");
  EXPECT_EQ(binding.cpus, "");
  EXPECT_CONTAINS(binding.text, "all CPUs are equally near to it");
}

TEST(GpuBinding, UnknownDeviceIsSaid) {
  const GpuBinding binding = plan_gpu_binding("0000:77:00.0", kTwoNodes, "0-3");
  EXPECT_EQ(binding.cpus, "");
  EXPECT_EQ(binding.text,
            "threads are not bound to the GPU's cores: this machine shows no such PCI device");
}

TEST(GpuBinding, MachineThatCannotBeReadIsSaid) {
  EXPECT_CONTAINS(plan_gpu_binding("0000:1b:00.0", "<nonsense", "0-3").text,
                  "the machine's topology is not readable");
}

TEST(GpuBinding, ThisProcessIsLeftAloneForAnUnknownDevice) {
  cpu_set_t before, after;
  CPU_ZERO(&before);
  CPU_ZERO(&after);
  sched_getaffinity(0, sizeof(before), &before);
  EXPECT_CONTAINS(bind_to_gpu("0000:ff:1f.7"), "threads are not bound");
  sched_getaffinity(0, sizeof(after), &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace lockstep::launcher
