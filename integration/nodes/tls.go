package nodes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// The names of the files that a server needs.
const (
	caFile   = "redlock-ca.crt"
	certFile = "redlock-node.crt"
	keyFile  = "redlock-node.key"
)

// certificateLife is longer than any test and short enough to be worthless when a file is left behind.
const certificateLife = 24 * time.Hour

// An authority is a certificate authority of one cluster, and what it issued: one certificate that all nodes
// share, for they all live at the loopback address, and one for the client.
type authority struct {
	files  map[string][]byte // by name; for the servers
	client *tls.Config
}

func newAuthority() (*authority, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("nodes: key of the authority: %w", err)
	}
	ca := template("go-redlock test authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("nodes: certificate of the authority: %w", err)
	}
	caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})

	node := template("go-redlock test node")
	node.DNSNames = []string{"localhost"}
	node.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	node.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	nodeCert, nodeKey, err := issue(node, ca, caKey)
	if err != nil {
		return nil, err
	}

	client := template("go-redlock test client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	clientCert, clientKey, err := issue(client, ca, caKey)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		return nil, fmt.Errorf("nodes: key pair of the client: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caPEM)

	return &authority{
		files: map[string][]byte{caFile: caPEM, certFile: nodeCert, keyFile: nodeKey},
		client: &tls.Config{
			RootCAs:      roots,
			Certificates: []tls.Certificate{pair},
			MinVersion:   tls.VersionTLS12,
		},
	}, nil
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic("nodes: no randomness: " + err.Error()) // crypto/rand does not fail on any supported system
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // the clock of a container may lag
		NotAfter:     time.Now().Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func issue(cert, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("nodes: key for %s: %w", cert.Subject, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("nodes: certificate for %s: %w", cert.Subject, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("nodes: key for %s: %w", cert.Subject, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
