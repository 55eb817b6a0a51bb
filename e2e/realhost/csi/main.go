// Command csi is a small CSI driver for one node: a volume is a file on a loop device, with XFS on it or as a bare
// block device. It grows online, and is copied for snapshots and clones. Kubernetes' own sidecars drive it.
//
//	csi SOCKET REGISTRATION_SOCKET DIR NODE
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	name     = "loop.csi.example.org"
	topology = "topology.loop.csi.example.org/node"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	socket, dir, node string
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("csi SOCKET REGISTRATION_SOCKET DIR NODE")
	}
	d := &driver{socket: os.Args[1], dir: os.Args[3], node: os.Args[4]}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	go serve(server, d.socket)
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, plugin{d: d})
	serve(registrar, os.Args[2])
}

func serve(server *grpc.Server, socket string) {
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}

func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	reply, err := next(ctx, request)
	if err != nil || !strings.HasSuffix(info.FullMethod, "Probe") {
		log.Println(info.FullMethod, err)
	}
	return reply, err
}

func run(program string, arguments ...string) (string, error) {
	out, err := exec.Command(program, arguments...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// What a kubelet asks of a plugin that it finds.
type plugin struct {
	registration.UnimplementedRegistrationServer
	d *driver
}

func (r plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: r.d.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r plugin) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Println("registered:", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: kind}}}
	}
	expansion := &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		expansion,
	}}, nil
}

func (d *driver) file(id string) string { return filepath.Join(d.dir, filepath.Base(id)) }
