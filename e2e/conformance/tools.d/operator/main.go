// Operator is a controller as users write them, with controller-runtime and client-go as they come: a manager with
// leader election and caches, a finalizer, owned objects, conditions in the status, server-side apply, events, informers,
// dynamic and metadata clients. It works for a while on objects of `orders.shop.example.com` and prints what held.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	namespace = "operator"
	finalizer = "shop.example.com/done"
	orders    = 20
)

var kind = schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Order"}
var resource = kind.GroupVersion().WithResource("orders")

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, cancel); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

type reconciler struct {
	client.Client
	events func(object client.Object, reason, note string)
}

func order(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := order(request.Name)
	if err := r.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !object.GetDeletionTimestamp().IsZero() {
		if controllerutil.RemoveFinalizer(object, finalizer) {
			return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, object))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(object, finalizer) {
		if err := r.Update(ctx, object); err != nil {
			return ctrl.Result{}, err
		}
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object.GetName()}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, settings, func() error {
		amount, _, _ := unstructured.NestedInt64(object.Object, "spec", "amount")
		settings.Data = map[string]string{"amount": fmt.Sprint(amount)}
		return controllerutil.SetControllerReference(object, settings, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := object.DeepCopy()
	ready := map[string]interface{}{"type": "Ready", "status": "True", "reason": "Made", "observedGeneration": object.GetGeneration()}
	if err := unstructured.SetNestedSlice(object.Object, []interface{}{ready}, "status", "conditions"); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.events(object, "Made", "the order is made")
	return ctrl.Result{}, nil
}

func manager(ctx context.Context, name string) (ctrl.Manager, error) {
	m, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection: true, LeaderElectionID: "operator", LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	recorder := m.GetEventRecorder(name)
	r := &reconciler{Client: m.GetClient(), events: func(object client.Object, reason, note string) {
		recorder.Eventf(object, nil, corev1.EventTypeNormal, reason, "Reconcile", note)
	}}
	return m, ctrl.NewControllerManagedBy(m).Named(name).For(order("")).Owns(&corev1.ConfigMap{}).Complete(r)
}

func until(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 40*time.Second, true, done)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Println("ok:", what)
	return nil
}

func isReady(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return len(conditions) == 1
}

func run(ctx context.Context, cancel context.CancelFunc) error {
	config := ctrl.GetConfigOrDie()
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	loose := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(namespace)
	about := metadata.NewForConfigOrDie(config).Resource(resource).Namespace(namespace)
	if _, err := typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}

	// Two replicas of the operator: one of them leads, and the other follows when it ends.
	first, stopFirst := context.WithCancel(ctx)
	defer stopFirst()
	ended := make(chan error, 2)
	for i, part := range []context.Context{first, ctx} {
		m, err := manager(ctx, fmt.Sprintf("operator-%d", i))
		if err != nil {
			return err
		}
		go func() { ended <- m.Start(part) }()
		if i == 0 {
			select {
			case <-m.Elected():
				fmt.Println("ok: the first replica leads")
			case <-ctx.Done():
				return fmt.Errorf("nobody leads: %w", ctx.Err())
			}
		}
	}

	// Informers as client-go makes them, with an index.
	factory := informers.NewSharedInformerFactoryWithOptions(typed, time.Minute, informers.WithNamespace(namespace))
	settings := factory.Core().V1().ConfigMaps()
	seen := make(chan string, 10*orders)
	if _, err := settings.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object interface{}) {
		if settings, ok := object.(*corev1.ConfigMap); ok {
			seen <- settings.Name
		}
	}}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	for i := range orders {
		object := order(fmt.Sprintf("order-%d", i))
		if err := unstructured.SetNestedField(object.Object, int64(i+1), "spec", "amount"); err != nil {
			return err
		}
		if _, err := loose.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	ready := func(wanted int) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			list, err := loose.List(ctx, metav1.ListOptions{Limit: 500})
			if err != nil {
				return false, err
			}
			count := 0
			for i := range list.Items {
				if isReady(&list.Items[i]) {
					count++
				}
			}
			cached, err := settings.Lister().ConfigMaps(namespace).List(labels.Everything())
			return count == wanted && len(cached) >= wanted, err
		}
	}
	if err := until(ctx, "all orders are made, and informers have seen what was made for them", ready(orders)); err != nil {
		return err
	}

	// The other one takes over.
	stopFirst()
	if err := <-ended; err != nil {
		return fmt.Errorf("the first replica: %w", err)
	}
	late := order("late")
	if err := unstructured.SetNestedField(late.Object, int64(7), "spec", "amount"); err != nil {
		return err
	}
	if _, err := loose.Create(ctx, late, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "the second replica leads and works", ready(orders+1)); err != nil {
		return err
	}

	// Many writers of one object meet in conflicts, and all of them get through.
	const writers = 8
	counted := make(chan error, writers)
	for range writers {
		go func() {
			counted <- retry.RetryOnConflict(wait.Backoff{Steps: 50, Duration: 5 * time.Millisecond, Factor: 1.2, Jitter: 1}, func() error {
				object, err := typed.CoreV1().ConfigMaps(namespace).Get(ctx, "count", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					_, err = typed.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "count"}, Data: map[string]string{"n": "1"}}, metav1.CreateOptions{})
					if apierrors.IsAlreadyExists(err) {
						return apierrors.NewConflict(corev1.Resource("configmaps"), "count", err)
					}
					return err
				}
				if err != nil {
					return err
				}
				var n int
				fmt.Sscan(object.Data["n"], &n)
				object.Data["n"] = fmt.Sprint(n + 1)
				_, err = typed.CoreV1().ConfigMaps(namespace).Update(ctx, object, metav1.UpdateOptions{})
				return err
			})
		}()
	}
	for range writers {
		if err := <-counted; err != nil {
			return fmt.Errorf("a writer: %w", err)
		}
	}
	if err := until(ctx, "concurrent writers lose nothing", func(ctx context.Context) (bool, error) {
		object, err := typed.CoreV1().ConfigMaps(namespace).Get(ctx, "count", metav1.GetOptions{})
		return err == nil && object.Data["n"] == fmt.Sprint(writers), err
	}); err != nil {
		return err
	}

	// Server-side apply by two managers.
	apply := func(manager, key string, force bool) error {
		_, err := typed.CoreV1().ConfigMaps(namespace).Apply(ctx, applycore.ConfigMap("shared", namespace).WithData(map[string]string{key: manager}), metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	if err := apply("one", "a", false); err != nil {
		return err
	}
	if err := apply("two", "b", false); err != nil {
		return err
	}
	if err := apply("two", "a", false); !apierrors.IsConflict(err) {
		return fmt.Errorf("two managers of one field: %v instead of a conflict", err)
	}
	if err := apply("two", "a", true); err != nil {
		return err
	}
	fmt.Println("ok: managers of fields meet in conflicts, and force wins")

	// The watch of a metadata client from a revision on, and a delete through a finalizer with what is owned.
	listed, err := about.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	watcher, err := about.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	policy := metav1.DeletePropagationForeground
	if err := loose.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &policy}, metav1.ListOptions{}); err != nil {
		return err
	}
	gone := 0
	for gone < orders+1 {
		select {
		case event := <-watcher.ResultChan():
			if event.Type == "DELETED" {
				gone++
			}
			if _, err := meta.Accessor(event.Object); err != nil {
				return fmt.Errorf("%s: %w", event.Type, err)
			}
		case <-time.After(30 * time.Second):
			return fmt.Errorf("only %d of %d deletions were told", gone, orders+1)
		}
	}
	fmt.Println("ok: all were finalized, and a watch of metadata told each deletion")
	for range orders + 1 {
		select {
		case <-seen:
		case <-time.After(30 * time.Second):
			return fmt.Errorf("what was owned is not collected")
		}
	}
	fmt.Println("ok: what they owned is collected")

	// Events of the operator are there.
	events, err := typed.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Made"})
	if err != nil || len(events.Items) == 0 {
		return fmt.Errorf("%d events of the operator: %v", len(events.Items), err)
	}
	fmt.Println("ok: events are told")

	// A scale through the typed client, and the rollout that follows.
	one := int32(1)
	app := map[string]string{"app": "scaled"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "scaled"}, Spec: appsv1.DeploymentSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: app},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-2", Command: []string{"sleep", "100000"}}}},
		}}}
	if _, err := typed.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return err
	}
	scale, err := typed.AppsV1().Deployments(namespace).GetScale(ctx, "scaled", metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = 3
	if _, err := typed.AppsV1().Deployments(namespace).UpdateScale(ctx, "scaled", scale, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "a scaled Deployment is ready", func(ctx context.Context) (bool, error) {
		found, err := typed.AppsV1().Deployments(namespace).Get(ctx, "scaled", metav1.GetOptions{})
		return err == nil && found.Status.ReadyReplicas == 3, err
	}); err != nil {
		return err
	}
	_, err = typed.CoreV1().ConfigMaps(namespace).Patch(ctx, "absent", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("a patch of what is absent: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		return fmt.Errorf("the second replica: %w", err)
	}
	return nil
}
